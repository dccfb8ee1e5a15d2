"""What the commands that work over the API have in common: errors, signals, JSON, coming back."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from typing import Any

from ttsweb.client import Client, ClientError
from ttsweb.client.http import WAIT_RETRIES
from ttsweb.commands.base import BaseCommand
from ttsweb.commands.following import Followed, follow
from ttsweb.commands.interrupts import EXIT_INTERRUPTED, signals_interrupt
from ttsweb.commands.remote import open_client, remote_errors_told
from ttsweb.private_files import users_umask
from ttsweb.terminal.job_bars import JobBars


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
            with remote_errors_told(self.stdout, as_json=chosen.json), signals_interrupt():
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
            found = [{"job": item.job["id"], "come_back": item.come_back} for item in left]
            self.tell({"detached": found})
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
