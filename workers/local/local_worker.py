"""Make sure that a worker is there for as long as a command needs one, and speak a text with it.

A worker that runs already is used. Otherwise one is started as a child process, the very same
`manage.py worker` as anywhere else. A lock in the data folder lets one command own that child;
the child shares it, so that the lock outlives a command that was killed.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import os
import sys
import time
import uuid
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings
from django.contrib.auth.models import User
from django.core.files.storage import default_storage
from django.db import DatabaseError, InterfaceError, connection, models
from django.db.models import Sum

from synth.jobs.submit import Order, Sender, submit_job
from synth.models import Export, RenderJob, Segment, WorkerStatus
from synth.text.normalise import TextRejectedError, clean_text
from synth.transitions.jobs import cancel_job, close_cancelled_jobs
from ttsweb import leases
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
from ttsweb.migration import migrate_once
from ttsweb.private_files import users_umask
from ttsweb.refusals import SubmitRejectedError, counted
from voices.access import find_voice
from voices.models import Voice, VoiceVersion
from workers.local.children import Child, last_line, open_log, open_standard_streams, stop_all
from workers.process.status import default_name

LOCK_NAME = "worker.lock"
LOOK_EVERY_SECONDS = 1.0
LIVE_SECONDS = 20.0  # a living worker writes its row every 5 s
POLL_SECONDS = 0.1
LIVE = (WorkerStatus.State.STARTING, WorkerStatus.State.WARMING, *WorkerStatus.SERVING)


class LocalWorker:
    """The worker of this command, or somebody else's that does the same."""

    def __init__(self, *, log_path: Path | None = None) -> None:
        """Start nothing yet; `log_path` takes the child's log, else it goes to standard error."""
        self.name = default_name("embedded")
        self._log_path = log_path
        self.log = open_log(log_path) if log_path else None
        self._lock: int | None = None
        self.child: Child | None = None
        self._spawned_at = dt.datetime.min.replace(tzinfo=dt.UTC)
        self._next_look_at = 0.0

    def keep(self) -> None:
        """Call often: start a worker when none is there, start ours again when it died."""
        if self.child is not None:
            self.child.restart_if_dead()
            return
        if time.monotonic() < self._next_look_at:
            return
        self._next_look_at = time.monotonic() + LOOK_EVERY_SECONDS
        try:
            if self._take_lock() and not self._others_serve():
                self._spawned_at = leases.database_now()
                arguments = ["worker", "--role", "all", "--name", self.name]
                held = [self._lock] if self._lock is not None else []
                self.child = Child("worker", "manage", arguments, descriptors=held, log=self.log)
                self.child.start()
        except (DatabaseError, InterfaceError):
            connection.close()  # away for now; the next look opens another connection
            self._drop_lock()

    def is_ready(self) -> bool:
        """Return whether a worker with a warm engine has been seen lately."""
        rows = _seen_lately().filter(state__in=WorkerStatus.SERVING, role__in=("gpu", "all"))
        if self.child is not None:
            # The row of an earlier run under our name may still be there.
            rows = rows.filter(pk=self.name, started_at__gte=self._spawned_at)
        return rows.exists()

    def wait_ready(self, progress: Progress) -> None:
        """Return once a worker is ready.

        Raises:
            StepError: worker_failed, when our worker ended before it was ready.
        """
        started = time.monotonic()
        self.keep()  # first of all: a row that says ready may be that of a killed worker
        while not self.is_ready():
            if self.child is None:
                self.keep()
            elif self.child.exit_code is not None:  # to start it again would fail the same way
                own = WorkerStatus.objects.filter(pk=self.name, started_at__gte=self._spawned_at)
                detail = own.values_list("detail", flat=True).first() or ""
                if not detail and self._log_path is not None:
                    detail = last_line(self._log_path)
                where = f" Its log is {self._log_path}." if self._log_path else ""
                ended = f"ended before it was ready (exit code {self.child.exit_code})"
                raise StepError("worker_failed", f"The worker {ended}: {detail}{where}")
            progress.update(f"warming up, {time.monotonic() - started:.0f} s")
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """End our worker, if there is one; what it holds is finished or handed back."""
        if self.child is not None:
            stop_all([self.child])
        self.close()

    def close(self) -> None:
        """Give back the lock and the log file of a worker that has ended."""
        self.child = None
        self._drop_lock()
        if self.log is not None:
            self.log.close()

    def _take_lock(self) -> bool:
        """Return whether this process may own the embedded worker of this data folder."""
        if self._lock is not None:
            return True
        settings.DATA_DIR.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(settings.DATA_DIR / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._lock = descriptor
        return True

    def _drop_lock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _others_serve(self) -> bool:
        """Return whether other workers do all that ours would; then the lock is given back."""
        rows = _seen_lately().filter(state__in=LIVE).exclude(pk=self.name)
        roles = set(rows.values_list("role", flat=True))
        found = "all" in roles or roles >= {"gpu", "cpu"}
        if found:
            self._drop_lock()
        return found


def _seen_lately() -> models.QuerySet[WorkerStatus]:
    """Return the workers that have shown a sign of life a moment ago."""
    since = leases.database_now() - dt.timedelta(seconds=LIVE_SECONDS)
    return WorkerStatus.objects.filter(last_seen_at__gt=since)


CHUNK_BYTES = 1 << 20
Row = TypeVar("Row", VoiceVersion, RenderJob)


def wait_encoded(version_id: uuid.UUID, worker: LocalWorker, progress: Progress) -> VoiceVersion:
    """Return a voice version once it is ready.

    Raises:
        StepError: it failed, with its own code and sentence, or voice_deleted.
    """
    gone = StepError("voice_deleted", "The voice was deleted while it was encoded.")
    for version, seconds in _polled(VoiceVersion.objects.filter(pk=version_id), worker, gone):
        if version.status == VoiceVersion.Status.READY:
            break
        if version.status == VoiceVersion.Status.FAILED:
            raise StepError(version.error_code, version.error_message)
        progress.update(f"{version.status}, {seconds:.0f} s")
    return version


def _polled(
    rows: models.QuerySet[Row], worker: LocalWorker, gone: StepError
) -> Iterator[tuple[Row, float]]:
    """Yield a row as it is now, and the seconds since the first look; raise `gone` without one."""
    started = time.monotonic()
    while (row := rows.first()) is not None:
        yield row, time.monotonic() - started
        time.sleep(POLL_SECONDS)
        worker.keep()
    raise gone


def wait_ended(job_id: uuid.UUID, worker: LocalWorker, progress: Progress) -> RenderJob:
    """Return a job once it has succeeded.

    Raises:
        StepError: it ended in another way; with the job's code, or that of a failed segment.
    """
    gone = StepError("job_deleted", "The job was deleted while it was rendered.")
    for job, elapsed in _polled(RenderJob.objects.filter(pk=job_id), worker, gone):
        if job.status in RenderJob.FINAL:
            break
        takes = job.segments.filter(status=Segment.Status.DONE)
        seconds = takes.aggregate(seconds=Sum("take__audio_seconds"))["seconds"] or 0.0
        speed = f"{seconds:.1f} s of audio, {seconds / max(elapsed, 0.001):.1f}x real time"
        progress.update(speed, done=job.segments_done, total=job.segments_total)
    if job.status == RenderJob.Status.SUCCEEDED:
        return job
    failed = job if job.error_code else job.segments.filter(status=Segment.Status.FAILED).first()
    if failed is not None:
        raise StepError(failed.error_code, failed.error_message)
    raise StepError(f"job_{job.status}", f"The job {job.pk} ended as {job.status}.")


def summary(job: RenderJob) -> str:
    text = f"{job.segments_done}/{job.segments_total} segments"
    if job.started_at is None or job.finished_at is None:
        return text
    elapsed = max((job.finished_at - job.started_at).total_seconds(), 0.001)
    return f"{text}, {job.audio_seconds / elapsed:.1f}x real time"


def save_audio(job: RenderJob, target: Path) -> None:
    """Write a finished job's file to `target`, all of it or nothing.

    Raises:
        StepError: audio_missing, or file_not_written with the reason.
    """
    export = job.exports.filter(format=job.format, status=Export.Status.DONE).first()
    if export is None:
        raise StepError("audio_missing", f"The job {job.pk} has no {job.format} file.")
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        with nullcontext() if target.is_relative_to(settings.DATA_DIR) else users_umask():
            target.parent.mkdir(parents=True, exist_ok=True)
            file = part.open("wb")
        with default_storage.open(export.key) as source, file:
            while chunk := source.read(CHUNK_BYTES):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except OSError as error:
        raise StepError("file_not_written", f"{target} could not be written: {error}.") from error
    finally:
        part.unlink(missing_ok=True)


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


def say(command: BaseCommand, options: dict[str, Any]) -> None:
    open_standard_streams()
    chosen = Namespace(**options)
    try:
        with reporting_errors(command.stdout, as_json=chosen.json), signals_interrupt():
            _say(command, chosen)
    except KeyboardInterrupt:
        command.stderr.write("Stopped; the job was cancelled.")
        sys.exit(EXIT_INTERRUPTED)


def _say(command: BaseCommand, chosen: Namespace) -> None:
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
