"""What the commands that work over the API have in common: errors, signals, JSON, coming back."""

from __future__ import annotations

import ipaddress
import json
import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ttsweb import settings
from ttsweb.client import ApiError, AuthenticationError, Client, ClientError, ServerUnreachableError
from ttsweb.client.http import WAIT_RETRIES
from ttsweb.commands.base import BaseCommand, Output
from ttsweb.commands.errors import EXIT_INTERRUPTED, StepError, reporting_errors, signals_interrupt
from ttsweb.commands.following import Followed, follow
from ttsweb.private_files import users_umask
from ttsweb.terminal.bars import JobBars

RETRIES = 3  # about three seconds: a person waits


def server_url() -> str:
    """Return TTS_URL, else where `./tts serve` listens on this machine."""
    if settings.SERVER_URL:
        return str(settings.SERVER_URL)
    host = settings.HOST
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"http://{host}:{settings.PORT}"
    if address.is_unspecified:  # all addresses, of which this is one
        host = "127.0.0.1" if address.version == 4 else "::1"
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.PORT}"


def open_client() -> Client:
    """Return a client of the server with the key of the settings.

    Raises:
        StepError: api_key_missing, with how to get one.
        ClientError: TTS_URL or TTS_API_KEY cannot be used.
    """
    if not settings.API_KEY:
        raise StepError(
            "api_key_missing",
            f"Set TTS_API_KEY to an API key of {server_url()}. Its admin makes keys at "
            '"API keys"; on the server\'s machine, ./tts create_key --user NAME --name '
            "LABEL makes one as well.",
        )
    return Client(server_url(), settings.API_KEY, retries=RETRIES)


@contextmanager
def reporting_remote_errors(stdout: Output, *, as_json: bool) -> Iterator[None]:
    """Turn what ends a command into one line and exit code 1; with JSON also into one object.

    Raises:
        CommandError: `code: sentence`.
    """
    with reporting_errors(stdout, as_json=as_json):
        try:
            yield
        except ClientError as error:
            raise StepError(error.code, _sentence(error)) from error
        except OSError as error:
            reason = error.strerror or str(error)
            where = f"{error.filename}: " if error.filename else ""
            raise StepError("file_error", f"{where}{reason}.") from error


def _sentence(error: ClientError) -> str:
    """Return what to do about an error, in the words of who sits at the command line."""
    if isinstance(error, ServerUnreachableError):
        if settings.SERVER_URL:
            return f"{error} Check the address in TTS_URL."
        return f"{error} ./tts serve starts a server here; TTS_URL can name another one."
    if isinstance(error, AuthenticationError) and error.status == 401:
        return f"{error} Set TTS_API_KEY to a key of {server_url()}."
    if isinstance(error, ApiError) and error.code in ("job_not_finished", "batch_not_finished"):
        return f"{error} --follow waits for it."
    return str(error)


class RemoteCommand(BaseCommand):
    """A command that needs a server and a key, and neither database nor engine.

    Attributes:
        followed: the jobs that were made or asked for; Ctrl-C tells how to come back to them.
        come_back: other lines that lead back to what goes on.
    """

    needs_django = False

    followed: list[Followed]
    come_back: list[str]

    def run(self, client: Client, chosen: Namespace) -> None:
        """Do the command's work; `ClientError` and `OSError` are told by `handle`."""
        raise NotImplementedError

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the command: exit code 0 done, 1 failed, 130 broken off by a signal."""
        chosen = Namespace(**options)
        self.followed, self.come_back = [], []
        try:
            with reporting_remote_errors(self.stdout, as_json=chosen.json), signals_interrupt():
                with open_client() as client, users_umask():
                    self._run(client, chosen)
                self.stdout.flush()
        except KeyboardInterrupt:
            self._tell_detached(as_json=chosen.json)
            sys.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:  # whoever read our lines has enough of them
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)

    def tell(self, found: Any) -> None:
        """Print the one JSON object of this run."""
        self.stdout.write(json.dumps(found))

    def note(self, line: str) -> None:
        """Print a line for a person, beside the answer."""
        self.stderr.write(line, str)  # it is no error, so not in red

    def follow(self, client: Client) -> None:
        """Wait for the files of all jobs in `followed`; a server that starts again ends nothing."""
        client.retries = WAIT_RETRIES
        with JobBars(sys.stderr, len(self.followed)) as bars:
            follow(client, self.followed, bars)

    def _run(self, client: Client, chosen: Namespace) -> None:
        try:
            self.run(client, chosen)
        except (ClientError, OSError) as error:
            if not isinstance(error, BrokenPipeError):
                self._tell_left()
            raise

    def _tell_detached(self, *, as_json: bool) -> None:
        left = [item for item in self.followed if not item.is_closed]
        if as_json:
            jobs = [{"job": item.job["id"], "come_back": item.come_back} for item in left]
            others = [{"come_back": line} for line in self.come_back]
            self.tell({"detached": [*jobs, *others]})
        if not self._tell_left():
            self.note("Stopped.")

    def _tell_left(self) -> bool:
        """Say how to come back to what goes on without us, and return whether anything does."""
        lines = [item.come_back for item in self.followed if not item.is_closed] + self.come_back
        if lines:
            self.note("The server continues the work. To come back to it, run")
            for line in lines:
                self.note(f"  {line}")
        return bool(lines)
