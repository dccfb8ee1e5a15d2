"""Serve the project in a process of its own, for tests of what happens around Django."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class Served:
    """A running server, and a client that has a key of the operator."""

    client: httpx.Client
    process_id: int


@contextmanager
def serving(data_dir: Path) -> Iterator[Served]:
    """Serve the project with this data folder until the block ends."""
    key = in_project(
        data_dir,
        "from django.core.management import call_command\n"
        "call_command('migrate', verbosity=0)\n"
        "from tests.factories import make_user\nfrom synth.accounts.keys import create_key\n"
        "print(create_key(make_user('operator'), 'test')[1])",
    )
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        arguments = ["-m", "uvicorn", "ttsweb.asgi:application", "--log-level", "warning"]
        arguments += ["--lifespan", "off", "--fd", str(listening.fileno())]
        process = subprocess.Popen(
            [sys.executable, *arguments],
            env=environment(data_dir),
            cwd=PROJECT,
            pass_fds=[listening.fileno()],
        )
        try:
            base_url = f"http://127.0.0.1:{listening.getsockname()[1]}/api/v1"
            headers = {"Authorization": f"Bearer {key}"}
            with httpx.Client(base_url=base_url, headers=headers, timeout=30) as client:
                client.get("/jobs").raise_for_status()
                yield Served(client, process.pid)
        finally:
            process.terminate()
            process.wait(20)


def make_job(data_dir: Path) -> str:
    """Make a queued job of the operator and return its id."""
    return in_project(
        data_dir,
        "from django.contrib.auth.models import User\n"
        "from tests.factories import make_job, make_voice\n"
        "owner = User.objects.get(username='operator')\n"
        f"print(make_job(owner=owner, voice=make_voice('{uuid.uuid4()}')).pk)",
    )
