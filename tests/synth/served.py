"""Serve the project in a process of its own, for tests of what happens around Django."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

PROJECT = Path(__file__).resolve().parents[2]


def environment(data_dir: Path) -> dict[str, str]:
    """Return the environment of a process that uses this data folder."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return kept | {
        "DJANGO_SETTINGS_MODULE": "tests.process_settings",
        "PYTHONPATH": str(PROJECT),
        "TTS_DATA_DIR": str(data_dir),
        "TTS_ENV_FILE": os.devnull,
        "TTS_TEST_CHANGED": '{"MAX_WAIT_SECONDS": 5.0}',
    }


def in_project(data_dir: Path, code: str) -> str:
    """Run code in a process of its own, with Django set up; return what it prints."""
    code = f"import django; django.setup()\n{code}"
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment(data_dir),
        cwd=PROJECT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.strip()


# Runs code that stands in lines of JSON, and prints what it names `answer`.
_BESIDE = """
import json, sys
import django; django.setup()
START = '''
import time, uuid
from django.contrib.auth.models import User
from tests.factories import *
def operator(): return User.objects.get(username="operator")
'''
for line in sys.stdin:
    names = {}
    exec(START + json.loads(line), names)
    print(json.dumps(names.get("answer"), default=str), flush=True)
"""


_MAKE_KEY = """
from django.core.management import call_command
from synth.accounts.access import create_key
call_command("migrate", verbosity=0)
answer = create_key(make_user("operator"), "test")[1]
"""


@dataclass(frozen=True)
class Served:
    """A running server, a client that has a key of the operator, and a process beside it."""

    client: httpx.Client
    process_id: int
    beside: subprocess.Popen[str]

    def begin(self, code: str) -> None:
        """Let the process beside the server run code, with factories and `operator` at hand."""
        assert self.beside.stdin is not None
        self.beside.stdin.write(json.dumps(code) + "\n")
        self.beside.stdin.flush()

    def answer(self) -> Any:
        """Return the `answer` of the code that was begun."""
        assert self.beside.stdout is not None
        return json.loads(self.beside.stdout.readline())

    def run(self, code: str) -> Any:
        self.begin(code)
        return self.answer()

    def make_job(self) -> str:
        """Make a queued job of the operator and return its id."""
        made: str = self.run(
            "answer = make_job(owner=operator(), voice=make_voice(shared=True)).pk"
        )
        return made


@contextmanager
def serving(data_dir: Path) -> Iterator[Served]:
    """Serve the project with this data folder until the block ends."""
    beside = subprocess.Popen(
        [sys.executable, "-c", _BESIDE],
        env=environment(data_dir),
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with socket.socket() as listening, beside:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        arguments = ["-m", "uvicorn", "ttsweb.asgi:application", "--log-level", "warning"]
        arguments += ["--lifespan", "off", "--fd", str(listening.fileno())]
        key = Served(httpx.Client(), 0, beside).run(_MAKE_KEY)
        process = subprocess.Popen(
            [sys.executable, *arguments],
            env=environment(data_dir),
            cwd=PROJECT,
            pass_fds=[listening.fileno()],
        )
        try:
            base_url = f"http://127.0.0.1:{listening.getsockname()[1]}/api/v1"
            headers = {"Authorization": f"Bearer {key}"}
            with httpx.Client(base_url=base_url, headers=headers, timeout=180) as client:
                client.get("/jobs").raise_for_status()
                yield Served(client, process.pid, beside)
        finally:
            beside.kill()
            process.terminate()
            process.wait(20)


def check_untouched(wrap: Callable[[Any], Any], method: str, path: str, query: bytes = b"") -> None:
    """Hold a wrapper of ASGI applications to handing a request on as it came."""
    given: list[Any] = []

    async def application(*arguments: Any) -> None:
        given.extend(arguments)

    scope = {"type": "http", "method": method, "path": path, "query_string": query}
    receive, send = object(), object()
    asyncio.run(wrap(application)(scope, receive, send))
    assert given == [scope, receive, send]
