"""A served project with a worker, and things of every kind behind its API."""

from __future__ import annotations

import itertools
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.workers.commands import (
    CLIP,
    PATIENCE_SECONDS,
    PROJECT,
    TRANSCRIPT,
    environment_for,
    run_python,
)

VOICE = "Ada"
# The operator has a number that no generated request names, so that none takes his rights away.
_MAKE_KEY = """
import django; django.setup()
from django.conf import settings
from django.contrib.auth import get_user_model
from synth.accounts.access import create_key
from ttsweb.migration import migrate_once
migrate_once(settings.DATA_DIR)
users = get_user_model().objects
boss = users.create_superuser("boss", password="a password of its own", id=1_700_000_001)
print(create_key(boss, "test", scopes=["read", "jobs", "voices", "admin"])[1])
"""
SETTINGS = {
    "DJANGO_SETTINGS_MODULE": "tests.process_settings",
    # A generated `wait` would be held for half a minute.
    "TTS_TRANSCRIBER": "tests.workers.rendering.plugged:lenient",
    "TTS_TEST_CHANGED": json.dumps({"PUMP_SECONDS": 0.5, "MAX_WAIT_SECONDS": 1.0}),
}
_names = itertools.count(1)


@dataclass
class ServedApi:
    """A served project: where it is, and a client with its operator's key."""

    url: str
    api: httpx.Client

    def wait_for(self, path: str, *states: str) -> dict[str, Any]:
        """Return a thing once it has one of these states."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            shown: dict[str, Any] = self.api.get(path).raise_for_status().json()
            if shown["status"] in states:
                return shown
            assert time.monotonic() < deadline, shown
            time.sleep(0.2)

    def make_voice(self, name: str) -> str:
        """Upload a voice and return its id; it speaks once a worker has encoded it."""
        form = {"name": name, "transcript": TRANSCRIPT, "consent_statement": "It is synthetic."}
        files = {"audio": ("clip.wav", CLIP.read_bytes(), "audio/wav")}
        answer = self.api.post("/voices", data=form, files=files).raise_for_status()
        return str(answer.json()["id"])


@dataclass
class Served(ServedApi):
    """One with things of every kind, by their ids."""

    key: str
    log: Path
    process_id: int
    ids: dict[str, str] = field(default_factory=dict)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def make(self, kind: str) -> str:
        """Make a new thing of a kind, as `job_id`, and return its id."""
        if kind == "voice_id":
            return self.make_voice(_unused("voice"))
        if kind == "transcript_id":
            files = {"audio": ("clip.wav", CLIP.read_bytes(), "audio/wav")}
            answer = self.api.post("/transcripts", files=files).raise_for_status()
            return str(answer.json()["id"])
        made = self._post(*_MAKING[kind](self))
        return str(made.get("id") or made["entries"][0]["id"])

    def fill(self) -> None:
        """Make one thing of each kind; `ids` then has them by the names of paths' parameters."""
        self.ids["voice_id"] = self.make_voice(VOICE)
        self.wait_for(f"/voices/{self.ids['voice_id']}", "ready")
        for kind in ("transcript_id", *_MAKING):
            self.ids[kind] = self.make(kind)
        job = self.ids["job_id"]
        self.wait_for(f"/jobs/{job}", "succeeded")
        self.wait_for(f"/batches/{self.ids['batch_id']}", "succeeded")
        segments = self.api.get(f"/jobs/{job}/segments").json()["results"]
        self.ids["segment_id"] = str(segments[0]["id"])

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self.api.post(path, json=body)
        assert answer.status_code < 300, answer.text
        found: dict[str, Any] = answer.json()
        return found


def _unused(what: str) -> str:
    return f"{what} {next(_names)}"


_MAKING: dict[str, Callable[[Served], tuple[str, dict[str, Any]]]] = {
    "job_id": lambda _: ("/jobs", {"text": "Hello there.", "voice": VOICE}),
    "batch_id": lambda _: (
        "/batches",
        {"items": [{"text": "Hello there."}], "defaults": {"voice": VOICE}},
    ),
    "key_id": lambda _: ("/keys", {"name": _unused("key"), "scopes": ["read"]}),
    "user_id": lambda _: ("/users", {"username": _unused("user").replace(" ", "-")}),
    "group_id": lambda _: ("/groups", {"name": _unused("group")}),
    "lexicon_id": lambda _: ("/lexicons", {"name": _unused("lexicon")}),
    "entry_id": lambda served: (
        f"/lexicons/{served.ids['lexicon_id']}/entries",
        {"find": _unused("word"), "say": "spoken"},
    ),
    "endpoint_id": lambda _: (
        "/webhooks/endpoints",
        {"url": f"https://93.184.215.14/{next(_names)}", "enabled": False},
    ),
    "delivery_id": lambda served: (f"/webhooks/endpoints/{served.ids['endpoint_id']}/test", {}),
}


@contextmanager
def serve(folder: Path, *arguments: str, **settings: str) -> Iterator[Served]:
    """Serve the project with a worker on the built-in model, from a folder of its own."""
    environment = environment_for(folder) | SETTINGS | settings
    key = run_python(environment, _MAKE_KEY)
    command = [sys.executable, str(PROJECT / "manage.py"), "serve", "--port", free_port()]
    log = folder / "log"  # a pipe that nobody reads would fill, and the server would wait for ever
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [*command, "--json", *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"].rstrip("/")
            headers = {"Authorization": f"Bearer {key}"}
            with httpx.Client(base_url=f"{url}/api/v1", headers=headers, timeout=60) as api:
                yield Served(url, api, key, log, process.pid)
        finally:
            process.terminate()
            process.wait(timeout=PATIENCE_SECONDS)


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])
