"""A real server with its worker for the commands that talk to one."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.core.management import call_command

from tests.workers.commands import (
    CLIP,
    MAKE_KEY,
    PATIENCE_SECONDS,
    TRANSCRIPT,
    environment_for,
    run_python,
    serving,
)
from ttsweb import settings
from ttsweb.client import Client, Clip
from ttsweb.commands.base import CommandError


@dataclass(frozen=True)
class Live:
    """A server, a client of it, and what a command needs to reach it.

    The commands have a data folder of their own and a database that nobody answers for: whatever
    they do not ask the server for fails.
    """

    client: Client
    environment: dict[str, str]

    def call(self, name: str, *given: object) -> subprocess.CompletedProcess[str]:
        """Run a command in the test's own process, where no database may be asked."""
        output, errors, code = io.StringIO(), io.StringIO(), 0
        arguments = tuple(map(str, given))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(settings, "SERVER_URL", self.environment["TTS_URL"])
            patch.setattr(settings, "API_KEY", self.environment["TTS_API_KEY"])
            try:
                call_command(name, *arguments, stdout=output, stderr=errors)
            except CommandError as error:
                code = error.returncode
                errors.write(f"CommandError: {error}\n")
            except SystemExit as end:
                code = int(end.code or 0)
        printed = (output.getvalue(), errors.getvalue())
        return subprocess.CompletedProcess([name, *arguments], code, *printed)

    def done(self, name: str, *given: object) -> str:
        """Run a command that ends well; return what it prints."""
        ended = self.call(name, *given)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with the voice Ada, and with the model that is built in."""
    environment = environment_for(tmp_path_factory.mktemp("server"))
    key = run_python(environment, MAKE_KEY)
    with serving(environment) as (_, said), Client(said["url"], key, timeout=60) as client:
        voice = client.voices.create("Ada", [Clip(CLIP, TRANSCRIPT)], consent="Synthetic.")
        client.voices.wait_ready(voice["id"], timeout=PATIENCE_SECONDS)
        yield Live(client, remote_environment(tmp_path_factory.mktemp("cli"), said["url"], key))


def remote_environment(folder: Path, url: str, key: str) -> dict[str, str]:
    """Return the environment of commands that may ask nobody but the server."""
    return environment_for(folder) | {
        "TTS_URL": url,
        "TTS_API_KEY": key,
        "TTS_SECRET_KEY": "no session is made here, but a database needs one to be set",
        "TTS_DATABASE_URL": "postgresql://nobody:none@127.0.0.1:9/none",
    }
