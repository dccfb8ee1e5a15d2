"""Speak a text with a voice into a file, by a worker of this machine: what `./tts say` does."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User

from synth.jobs.submit import Order, Sender, submit_job
from synth.models import RenderJob
from synth.text.normalise import TextRejectedError, clean_text
from synth.transitions.jobs import cancel_job, close_cancelled_jobs
from ttsweb.commands.base import (
    EXIT_INTERRUPTED,
    BaseCommand,
    StepError,
    reporting_errors,
    signals_held,
    signals_interrupt,
)
from ttsweb.commands.remote_command import asked_of, tell_spoken
from ttsweb.commands.terminal import Progress
from ttsweb.counted import counted
from ttsweb.migration import migrate_once
from ttsweb.refusals import SubmitRejectedError
from voices.access import find_voice
from voices.models import Voice, VoiceVersion
from workers.local.children import open_standard_streams
from workers.local.local_worker import LocalWorker, save_audio, summary, wait_encoded, wait_ended

LOG_NAME = "say.log"

LARGEST_SEED = 2**63 - 1
NAMES_LISTED = 20


def check_text(text: str) -> None:
    """Refuse at once what `submit_text` would refuse after the wait for a worker.

    Raises:
        StepError: with the text's own code and sentence.
    """
    try:
        clean_text(text, max_chars=settings.MAX_TEXT_CHARS)
    except TextRejectedError as error:
        raise StepError(error.code, str(error)) from error


def submit_text(
    text: str, voice: Voice, *, owner: User | None, audio_format: str, seed: int = 0
) -> RenderJob:
    """Make a job as the API does and return it.

    Raises:
        StepError: with the code and sentence that the API would answer.
    """
    if not 0 <= seed <= LARGEST_SEED:
        raise StepError("seed_invalid", f"A seed must be a whole number from 0 to {LARGEST_SEED}.")
    order = Order(text=text, voice=voice, seed=seed, format=audio_format)
    try:
        job, _ = submit_job(order, Sender(owner))
    except SubmitRejectedError as error:
        raise StepError(error.code, str(error)) from error
    return job


def find_speaker(wanted: str) -> tuple[Voice, VoiceVersion]:
    """Return a voice, by its name in whatever case or its id, and its newest version.

    Raises:
        StepError: voice_not_found, with the names that there are; voice_not_ready without a clip;
            a failed version's own code and sentence.
    """
    try:
        voice = find_voice(None, wanted)
    except SubmitRejectedError as error:
        voices = Voice.objects.filter(deleted_at__isnull=True, archived=False)
        names = list(voices.values_list("name", flat=True)[: NAMES_LISTED + 1])
        more = " and more" if len(names) > NAMES_LISTED else ""
        known = f"There are: {', '.join(names[:NAMES_LISTED])}{more}."
        if not names:
            known = "There are no voices yet; ./tts demo makes one."
        raise StepError(error.code, f"No voice is named {wanted!r}. {known}") from error
    version = voice.current_version
    if version is None:
        raise StepError("voice_not_ready", f"The voice {voice.name!r} has no clip yet; add one.")
    if version.status == VoiceVersion.Status.FAILED:
        raise StepError(version.error_code, version.error_message)
    return voice, version


def run(command: BaseCommand, options: dict[str, Any]) -> None:
    open_standard_streams()
    chosen = Namespace(**options)
    try:
        with reporting_errors(command.stdout, as_json=chosen.json), signals_interrupt():
            _run(command, chosen)
    except KeyboardInterrupt:
        command.stderr.write("Stopped; the job was cancelled.")
        sys.exit(EXIT_INTERRUPTED)


def _run(command: BaseCommand, chosen: Namespace) -> None:
    started = time.monotonic()
    text, made_format = asked_of(chosen)
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
    tell_spoken(command, chosen, started, finished.audio_seconds, str(finished.pk))


def render_or_cancel(
    submit: Callable[[], RenderJob], worker: LocalWorker, progress: Progress
) -> RenderJob:
    """Return the job that is submitted once it has ended; a signal cancels it, however soon."""
    job: RenderJob | None = None
    try:
        with signals_held():  # a job whose id is not known yet could not be cancelled
            job = submit()
        return wait_ended(job.pk, worker, progress)
    except KeyboardInterrupt:
        if job is not None:
            cancel_job(job.pk)
        raise
