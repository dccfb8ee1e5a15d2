"""Speak one text on the server that TTS_URL names; `./tts say` does this when that is set."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from pathlib import Path

from synth.formats import FORMATS
from ttsweb.client import Client, Job
from ttsweb.commands.errors import StepError
from ttsweb.commands.following import Followed, submit
from ttsweb.commands.remote_command import RemoteCommand


class RemoteSay(RemoteCommand):
    """Queue a job, wait for it, and write its file; Ctrl-C leaves the job as it is."""

    def run(self, client: Client, chosen: Namespace) -> None:
        """Write the file and say where it is."""
        started = time.monotonic()
        made_format = chosen.format or format_of(chosen.output)
        text = sys.stdin.read() if chosen.text == "-" else chosen.text

        def keep(job: Job) -> None:
            self.followed.append(Followed(chosen.output.name, job, chosen.output))

        submit(
            client,
            text,
            chosen.voice,
            tell=self.note,
            keep=keep,
            format=made_format,
            seed=chosen.seed,
        )
        [item] = self.followed
        self.follow(client)
        if item.error is not None:
            raise StepError(*item.error)
        path = item.target.resolve()
        if not chosen.json:
            self.stdout.write(f"{path}  ({item.job['audio_seconds']:.1f} s of audio)")
            return
        answer = {
            "audio_path": str(path),
            "audio_seconds": round(item.job["audio_seconds"], 3),
            "wall_seconds": round(time.monotonic() - started, 3),
            "job": item.job["id"],
        }
        self.tell(answer)


def format_of(path: Path) -> str:
    """Return the format that a file's suffix names.

    Raises:
        StepError: format_unknown.
    """
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise StepError(
            "format_unknown",
            f"{path.name} has no format in its name; end it in "
            f"{', '.join('.' + name for name in FORMATS)}, or give --format.",
        )
    return suffix
