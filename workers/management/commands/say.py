"""Speak a text with a voice, into a file."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synth.formats import FORMATS
from ttsweb.commands.base import BaseCommand
from ttsweb.commands.errors import errors_told
from ttsweb.commands.interrupts import signals_held, signals_interrupt
from ttsweb.commands.remote_say import RemoteSay, format_of
from ttsweb.counted import counted
from ttsweb.terminal.progress import Progress

if TYPE_CHECKING:
    from synth.models import RenderJob
    from workers.local.local_worker import LocalWorker

EXIT_INTERRUPTED = 130  # as a shell reports a command that Ctrl-C ended
LOG_NAME = "say.log"


class Command(BaseCommand):
    """Submit a job like any other, wait for it, and write its file."""

    help = (
        "Speak a text with a voice, into a file. Uses a running worker, or else starts one "
        "for as long as the command runs. If TTS_URL is set, that server renders the text."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the text, the voice and the file."""
        parser.add_argument("text", help="text to speak; - reads it from standard input")
        parser.add_argument("--voice", required=True, help="name or id of a voice")
        parser.add_argument("-o", "--output", type=Path, required=True, help="file to write")
        parser.add_argument(
            "--format",
            choices=tuple(FORMATS),
            help="audio format, if the file's name does not end in one",
        )
        parser.add_argument("--seed", type=int, default=0, help="another seed gives another take")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

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
        from workers.local.embedded import open_standard_streams

        open_standard_streams()
        chosen = Namespace(**options)
        try:
            with errors_told(self.stdout, as_json=chosen.json), signals_interrupt():
                self._run(chosen)
        except KeyboardInterrupt:
            self.stderr.write("Stopped; the job was cancelled.")
            sys.exit(EXIT_INTERRUPTED)

    def _run(self, chosen: Namespace) -> None:
        from django.conf import settings

        from synth.transitions import close_cancelled_jobs
        from ttsweb.migration import migrate_once
        from voices.models import VoiceVersion
        from workers.local.local_worker import LocalWorker
        from workers.local.speak import check_text, find_speaker, submit_text
        from workers.local.waiting import save_audio, summary, wait_encoded

        started = time.monotonic()
        made_format = chosen.format or format_of(chosen.output)
        text = sys.stdin.read() if chosen.text == "-" else chosen.text
        check_text(text)
        migrate_once(settings.DATA_DIR)
        voice, version = find_speaker(chosen.voice)
        progress = Progress(sys.stderr)
        worker = LocalWorker(log_path=settings.DATA_DIR / "logs" / LOG_NAME)
        try:
            progress.begin("Worker", "warming up")
            worker.wait_ready(progress)
            progress.end("ready")
            if version.status != VoiceVersion.Status.READY:
                progress.begin("Voice", "waiting for its encoding")
                wait_encoded(version.pk, worker, progress)
                progress.end("ready")
            progress.begin("Rendering", counted(len(text), "character"))
            submit = partial(
                submit_text, text, voice, owner=None, audio_format=made_format, seed=chosen.seed
            )
            finished = render_or_cancel(submit, worker, progress)
            save_audio(finished, chosen.output)
            progress.end(summary(finished))
        finally:
            progress.leave()
            worker.stop()
            # What the worker handed back in the moment of the cancel: nobody sweeps any more.
            close_cancelled_jobs()
        self._tell(finished, chosen, time.monotonic() - started)

    def _tell(self, job: RenderJob, chosen: Namespace, wall_seconds: float) -> None:
        path = chosen.output.resolve()
        if not chosen.json:
            self.stdout.write(f"{path}  ({job.audio_seconds:.1f} s of audio)")
            return
        answer = {
            "audio_path": str(path),
            "audio_seconds": round(job.audio_seconds, 3),
            "wall_seconds": round(wall_seconds, 3),
            "job": str(job.pk),
        }
        self.stdout.write(json.dumps(answer))


def render_or_cancel(
    submit: Callable[[], RenderJob], worker: LocalWorker, progress: Progress
) -> RenderJob:
    """Return the job that is submitted once it has ended; a signal cancels it, however soon."""
    from synth.transitions import cancel_job
    from workers.local.waiting import wait_ended

    job: RenderJob | None = None
    try:
        with signals_held():  # a job whose id is not known yet could not be cancelled
            job = submit()
        return wait_ended(job.pk, worker, progress)
    except KeyboardInterrupt:
        if job is not None:
            cancel_job(job.pk)
        raise
