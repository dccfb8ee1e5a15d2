"""Speak a text with a voice, into a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from synth.formats import FORMATS
from ttsweb.commands.base import JSON, BaseCommand, argument
from ttsweb.commands.remote_command import RemoteSay


class Command(BaseCommand):
    help = (
        "Speak a text with a voice, into a file. Uses a running worker, or else starts one "
        "for as long as the command runs. If TTS_URL is set, that server renders the text."
    )
    work = "workers.local.local_worker:say"

    arguments = (
        argument("text", help="text to speak; - reads it from standard input"),
        argument("--voice", required=True, help="name or id of a voice"),
        argument("-o", "--output", type=Path, required=True, help="file to write"),
        argument(
            "--format",
            choices=tuple(FORMATS),
            help="audio format, if the file's name does not end in one",
        ),
        argument("--seed", type=int, default=0, help="another seed gives another take"),
        JSON,
    )

    def execute(self, *args: Any, **options: Any) -> None:
        """Leave Django alone where a server does the work."""
        from ttsweb import settings

        self.needs_django = not settings.SERVER_URL
        super().execute(*args, **options)

    def handle(self, *args: Any, **options: Any) -> None:
        """Return when the file is written; a signal cancels the job, of a server's it goes on."""
        if not self.needs_django:
            remote = RemoteSay()
            remote.stdout, remote.stderr = self.stdout, self.stderr
            remote.handle(*args, **options)
            return
        super().handle(*args, **options)
