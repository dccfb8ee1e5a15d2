"""An installation as a whole: services of Compose, a database that is away, memory too small."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from django.db import InterfaceError, OperationalError, connection
from psycopg import sql
from rest_framework.test import APIClient

from synth.accounts.access import create_key
from synth.models import RenderJob, WorkerStatus
from synth.transitions.takes import flagged
from tests.compose_file import PROJECT, image_environment, render_compose
from tests.factories import make_user, make_voice
from tests.synth.engine.random_checkpoint import write_checkpoint
from tests.synth.review.rows import keep, make_spoken_job
from tests.ttsweb.test_files import open_paths
from tests.workers.commands import PATIENCE_SECONDS
from tests.workers.conftest import TINY
from tests.workers.pairs import Pair, wait_for
from tests.workers.web import served
from ttsweb.http.problems import AWAY, is_database_away
from voices.models import Voice

ENV_FILE = {
    "TTS_ALLOWED_HOSTS": "tts.example.org",
    "TTS_PORT": "9000",
    "TTS_WORKER_NAME": "north",
    "TTS_CHECKPOINT": "data/models/s2-pro",
}


@dataclass
class Stack:
    """The services as processes; `places` maps what is a container's to what is here."""

    services: dict[str, Any]
    folder: Path
    places: dict[str, str]
    base: dict[str, str]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, service: str, *, number: int = 1) -> None:
        """Start a service's command."""
        log = (self.folder / f"{service}-{number}.log").open("wb")
        self.processes[f"{service}-{number}"] = subprocess.Popen(
            self._here(self.services[service]["command"]), stdout=log, stderr=log,
            cwd=self.folder / "app", env=self._environment(service),
        )  # fmt: skip

    def wait_healthy(self, service: str) -> str:
        """Return what a service's probe prints once it exits with 0."""
        kind, *command = self.services[service]["healthcheck"]["test"]
        assert kind == "CMD"
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            probe = subprocess.run(
                self._here(command), cwd=self.folder / "app", env=self._environment(service),
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if probe.returncode == 0:
                return probe.stdout
            log = (self.folder / f"{service}-1.log").read_text()
            assert self.processes[f"{service}-1"].poll() is None, log
            assert time.monotonic() < deadline, probe.stderr + log
            time.sleep(0.5)

    def _environment(self, service: str) -> dict[str, str]:
        found = self.services[service]["environment"]
        return self.base | {name: self._place(value) for name, value in found.items()}

    def _here(self, command: list[str]) -> list[str]:
        assert command[0] == "python"
        return [*self._read_only_root(), sys.executable, *map(self._place, command[1:])]

    def _read_only_root(self) -> list[str]:
        """Return what runs a command where only the volumes can be written, as in a container."""
        if os.geteuid() != 0 or not shutil.which("unshare"):
            return []
        volume = self.folder / "data"
        script = f'mount --bind {volume} {volume} && mount -o remount,bind,ro / && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", script, "sh"]

    def _place(self, text: str) -> str:
        for there, here in self.places.items():
            text = text.replace(there, here)
        return text


@pytest.fixture
def stack(
    tmp_path: Path, clean_env: dict[str, str], postgres_url: str, redis_url: str
) -> Iterator[Stack]:
    app, data = tmp_path / "app", tmp_path / "data"
    left_out = shutil.ignore_patterns(".*", "data", "tests", "__pycache__", "docs", "lab")
    shutil.copytree(PROJECT, app, ignore=left_out)
    for folder in ("media", "models", "spool", "cache"):
        (data / folder).mkdir(parents=True)
    (app / "data").symlink_to(data)
    shutil.copytree(PROJECT / "synth" / "demo", data / "models" / "s2-pro")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    places = {
        "postgresql://ttsweb:p@postgres:5432/ttsweb": postgres_url,
        "redis://:r@redis:6379/0": redis_url,
        "/data": str(data),
        "8000": port,
    }
    image = {name: value.replace("/data", str(data)) for name, value in image_environment().items()}
    base = clean_env | image | {"PYTHONPATH": str(app)}
    made = Stack(render_compose(ENV_FILE), tmp_path, places, base)
    try:
        yield made
    finally:
        for process in made.processes.values():
            process.terminate()
        for process in made.processes.values():
            try:
                process.wait(timeout=PATIENCE_SECONDS)
            finally:
                process.kill()


@pytest.mark.redis
@pytest.mark.postgres
def test_every_service_becomes_healthy_with_the_settings_of_an_env_file(stack: Stack) -> None:
    stack.start("web")
    stack.wait_healthy("web")
    for number in (1, 2):
        stack.start("cpu-worker", number=number)
    stack.start("gpu-worker")

    assert stack.wait_healthy("gpu-worker").startswith("north-gpu is ")
    assert stack.wait_healthy("cpu-worker").startswith("north-cpu")

    site = f"http://127.0.0.1:{stack.places['8000']}"
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (ready := httpx.get(f"{site}/readyz", timeout=60)).is_success:
        assert time.monotonic() < deadline, ready.text
        time.sleep(0.5)
    assert httpx.get(f"{site}/api/v1/jobs", timeout=60).status_code == 400
    host = {"Host": "tts.example.org"}
    assert httpx.get(f"{site}/api/v1/jobs", headers=host, timeout=60).status_code == 401
    assert open_paths(*(stack.folder / "data" / name for name in ("media", "workers"))) == []
    names = {path.stem for path in (stack.folder / "data" / "workers").glob("*.lock")}
    assert names == {"north-gpu", "north-cpu", "north-cpu-2"}
    with psycopg.connect(stack.places["postgresql://ttsweb:p@postgres:5432/ttsweb"]) as database:
        query = "SELECT checkpoint FROM synth_workerstatus WHERE name = 'north-gpu'"
        assert database.execute(query).fetchone() == (f"{stack.folder}/app/data/models/s2-pro",)


SPEECH = {"model": "tts-1", "input": "Ox.", "voice": "Ada"}
LOGIN = {"username": "listener", "password": "password"}
REQUESTS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("synth_renderjob", "POST", "/api/v1/jobs", {"json": {"text": "Ox.", "voice": "Ada"}}),
    ("synth_segment", "POST", "/api/v1/jobs", {"json": {"text": "Ox.", "voice": "Ada"}}),
    ("synth_apikey", "GET", "/api/v1/jobs", {}),
    ("voices_voice", "DELETE", "/api/v1/voices/{voice}", {}),
    ("voices_voice", "GET", "/v1/audio/voices", {}),
    ("synth_renderjob", "POST", "/v1/audio/speech", {"json": SPEECH}),
    ("auth_user", "POST", "/admin/login/", {"data": LOGIN}),
]


END = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = %s AND wait_event_type = 'Lock'"""


def severed(database: str, table: str, send: Callable[[], httpx.Response]) -> httpx.Response:
    """Return the answer to a request whose connection was ended while it waited for a table."""
    url = os.environ["TTS_TEST_POSTGRES_URL"]
    with (
        psycopg.connect(url, dbname=database) as server,
        psycopg.connect(url, autocommit=True) as watcher,
        ThreadPoolExecutor(1) as pool,
    ):
        lock = sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(sql.Identifier(table))
        server.execute(lock)
        answer = pool.submit(send)
        end = partial(watcher.execute, END, [database])
        wait_for(lambda: end().fetchall(), what="the request waits for the table, and is cut off")
        server.rollback()
        return answer.result(60)


@pytest.mark.redis
@pytest.mark.postgres
@pytest.mark.parametrize("pair", ["services"], indirect=True)
def test_connection_ended_in_a_request_is_a_503_that_leaves_nothing_half_done(pair: Pair) -> None:
    voice = make_voice("Ada")
    with served(pair) as client:
        token = httpx.get(f"{client.base_url}/admin/login/").cookies["csrftoken"]
        for table, method, path, body in REQUESTS:
            connection.close()  # ours must not wait for the table
            headers = {"Cookie": f"csrftoken={token}", "X-CSRFToken": token}
            body["headers"] = headers if "admin" in path else {}
            send = partial(client.request, method, path.format(voice=voice.pk), **body)
            answer = severed(pair.database["NAME"], table, send)
            assert answer.status_code == 503, (path, answer.text)
            assert int(answer.headers["Retry-After"]) >= 1, path
            if path.startswith("/api/"):
                assert answer.headers["Content-Type"] == "application/problem+json", path
                assert answer.json()["code"] == AWAY.code, path
            elif path.startswith("/v1/"):
                assert answer.json()["error"]["code"] == AWAY.code, path
            else:
                assert "database does not answer" in answer.text, path
            assert not RenderJob.objects.exists(), path
            assert Voice.objects.filter(deleted_at=None).exists(), path
            assert client.get("/api/v1/jobs").status_code == 200, path

        made = client.post("/api/v1/jobs", json={"text": "Ox.", "voice": "Ada"})
        assert made.status_code == 202, made.text


def test_table_that_is_not_there_is_no_database_that_is_away() -> None:
    with sqlite3.connect(":memory:") as base, pytest.raises(sqlite3.OperationalError) as caught:
        base.execute("SELECT * FROM nothing")
    error = OperationalError("no such table")
    error.__cause__ = caught.value
    locked = OperationalError("database is locked")
    locked.__cause__ = sqlite3.OperationalError("database is locked")
    assert not is_database_away(error)
    assert is_database_away(locked)
    assert is_database_away(InterfaceError("connection already closed"))
    assert not is_database_away(ValueError())


def test_worker_fails_before_it_loads_and_its_row_says_what_to_set(
    pair: Pair, tmp_path: Path
) -> None:
    # Small weights and large heads: 512 slots would take a terabyte, more than test machines have.
    checkpoint = tmp_path / "checkpoint"
    sizes = {"n_local_heads": 4, "head_dim": 1024, "max_seq_len": 32_768}
    write_checkpoint(checkpoint, text=sizes)
    shutil.copyfile(TINY / "codec.pth", checkpoint / "codec.pth")
    for path in checkpoint.glob("*.safetensors"):
        path.write_bytes(b"no weight may be read")
    many: dict[str, Any] = {
        "TTS_ENGINE_SLOTS": 512,
        "TTS_ENGINE_MAX_POSITIONS": 32_768,
        "TTS_DEVICE": "cpu",
    }
    worker = pair.start_worker("w1", TTS_CHECKPOINT=checkpoint, **many)

    assert worker.popen.wait(180) == 1
    row = WorkerStatus.objects.get(pk="w1")
    assert row.state == WorkerStatus.State.FAILED
    sentence = (
        r"512 slots of 32768 positions need [\d.]+ GB, but this (machine|container) has only "
        r"[\d.]+ GB left for them: .* "
        r"Set (TTS_ENGINE_SLOTS to \d+ or fewer|TTS_ENGINE_MAX_POSITIONS to)"
    )
    assert re.search(sentence, row.detail), row.detail
    assert re.search(sentence, worker.log)


@pytest.mark.django_db(transaction=True)
def test_list_filters_pages_and_approvals_are_alike_in_both_databases(pair: Pair) -> None:
    owner = make_user("owner")
    api = APIClient(HTTP_AUTHORIZATION=f"Bearer {create_key(owner, 'test')[1]}")
    job = make_spoken_job(owner, 0.5, 1.0, None, 0.2, 1.0)
    rows = {segment.index: segment for segment in job.segments.all()}
    keep(rows[0], score=0.4, flags=["noise", "stuck"])
    keep(rows[4], score=0.9, flags=["level"])
    kept = keep(rows[4], score=1.0)
    rows[4].candidates = [
        flagged(one, {"rhythm": 0.6}) if one["take"] == str(kept.pk) else one
        for one in rows[4].candidates
    ]
    rows[4].save()
    short = make_spoken_job(owner, 1.0, status="partial", error_code="book_segments_short")
    short.segments.update(spoken_text="Nobody can say so much in less than a second. " * 4)
    make_spoken_job(make_user("other"), 0.1, None)

    def listed(**query: str) -> list[dict[str, Any]]:
        answer = api.get("/api/v1/review", query)
        assert answer.status_code == 200, answer.content
        found: list[dict[str, Any]] = answer.json()["results"]
        return found

    found = listed()
    assert [one["reason"] for one in found] == ["failed", "short", "flagged", "flagged", "flagged"]
    assert [one["score"] for one in found] == [0.0, None, 0.2, 0.4, 0.6]
    assert [one["index"] for one in listed(flag="stuck")] == [0]
    assert [one["index"] for one in listed(flag="rhythm")] == [4]
    assert [one["index"] for one in listed(status="failed")] == [2]
    first = api.get("/api/v1/review?limit=2").json()
    second = api.get(first["next"]).json()
    assert [*first["results"], *second["results"]] == found[:4]
    assert api.get(second["previous"]).json()["results"] == first["results"]

    takes = [{"segment": one["id"], "take": one["take"]} for one in found[1:]]
    answer = api.post("/api/v1/review/approve", {"takes": takes}, format="json")
    assert answer.status_code == 200, answer.content
    assert answer.json()["refused"] == []
    assert [one["reason"] for one in listed()] == ["failed"]
    assert len(listed(approved="true")) == 4
    assert RenderJob.objects.get(pk=short.pk).status == "succeeded"
    one = takes[1]
    again = api.post(f"/api/v1/review/{one['segment']}/approve", {"take": one["take"]})
    assert (again.status_code, again.json()["approved"]) == (200, True)
