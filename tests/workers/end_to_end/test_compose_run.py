"""Run each service of docker-compose.yml by its own command, and ask by its own probe.

In place of images and Docker's network: a copy of what the image holds, folders for the volumes,
and the addresses of servers of this test.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.compose_file import PROJECT, render_compose
from tests.ttsweb.test_private_files import open_paths
from tests.workers.commands import PATIENCE_SECONDS

ENV_FILE = {
    "TTS_ALLOWED_HOSTS": "tts.example.org",
    "TTS_PORT": "9000",
    "TTS_WORKER_NAME": "north",
    "TTS_CHECKPOINT": "data/models/s2-pro",
}
pytestmark = [pytest.mark.redis, pytest.mark.postgres]


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
        return [sys.executable, *map(self._place, command[1:])]

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
    for volume in ("media", "models", "workers"):
        (data / volume).mkdir(parents=True)
    (app / "data").symlink_to(data)
    shutil.copytree(PROJECT / "synth" / "demo", data / "models" / "s2-pro")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    places = {
        "postgresql://ttsweb:p@postgres:5432/ttsweb": postgres_url,
        "redis://redis:6379/0": redis_url,
        "/data": str(data),
        "8000": port,
    }
    base = clean_env | {"PYTHONPATH": str(app)}
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
