"""Join a finished job's takes, with the pauses between them, into the file that people download."""

from __future__ import annotations

import hashlib
import logging
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import soundfile
from django.conf import settings
from django.core.files import File
from django.core.files.storage import default_storage
from django.db.models import QuerySet

from synth import transitions
from synth.contract import AudioArray
from synth.models import Export, Segment, Take
from synth.transitions import Claim
from ttsweb.storage import TEMPORARY_SUFFIX
from voices.objects import delete_objects
from workers.audio_writers import FileTooLongError, open_writer
from workers.held_claims import HeldClaim
from workers.outages import is_disk_full, is_outage, outlast
from workers.time_stretch import stretch
from workers.worker_process import WorkerProcess

logger = logging.getLogger(__name__)

OPEN = (Segment.Status.QUEUED, Segment.Status.CLAIMED)
OUTAGE_DELAY_SECONDS = 5.0
OPEN_DELAY_SECONDS = 1.0
BLOCK_SAMPLES = 1 << 18  # what is in memory at once, whatever the length of the book
UNEXPECTED_MESSAGE = (
    "Making the file failed in a way nobody foresaw; the worker's log has the traceback."
)


class TakeMissingError(Exception):
    """A finished segment's audio is gone; it has to be rendered again."""

    def __init__(self, segment_ids: list[int]) -> None:
        super().__init__(f"{len(segment_ids)} takes have no audio")
        self.segment_ids = segment_ids


class SegmentsOpenError(Exception):
    """Segments were opened again; the file waits for them."""


class MixedRatesError(Exception):
    """The takes of a job do not have one sample rate."""


class ExportUnwantedError(Exception):
    """The export was deleted or taken over while its file was made."""


class MadeFile(NamedTuple):
    """What became of the takes: a file of `seconds` with this digest and size."""

    sha256: str
    size_bytes: int
    seconds: float


def assemble(process: WorkerProcess, claim: HeldClaim) -> None:
    """Make a claimed export's file and finish, fail or release it."""
    try:
        _assemble(process, claim)
    except Exception as error:
        if not process.handing_back.is_set():
            outlast(partial(_settle_error, process, claim, error))
    finally:
        process.held.drop(claim)


def _assemble(process: WorkerProcess, claim: HeldClaim) -> None:
    export = Export.objects.get(pk=claim.pk)
    if export.job.segments.filter(status__in=OPEN).exists():
        raise SegmentsOpenError
    segments = Segment.objects.filter(job=export.job_id, status=Segment.Status.DONE)
    segments = segments.select_related("take").order_by("chapter__index", "index")
    sample_rate = _check_takes(segments)
    process.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix="export-", suffix=TEMPORARY_SUFFIX, dir=process.scratch
    ) as folder:
        path = Path(folder) / f"export.{export.format}"
        blocks = stretch(_blocks(segments, sample_rate), sample_rate, speed=export.job.speed)
        made = _write_file(path, export.format, blocks, sample_rate, claim)
        name = f"exports/{made.sha256}/{uuid.uuid4().hex}.{export.format}"
        with path.open("rb") as file:
            key = default_storage.save(name, File(file))
    finish = partial(
        transitions.finish_export,
        Claim(claim.pk, claim.token),
        key=key,
        size_bytes=made.size_bytes,
        sha256=made.sha256,
        duration_seconds=made.seconds,
    )
    if outlast(finish):
        logger.info("file made: format=%s seconds=%.1f", export.format, made.seconds)
    else:
        delete_objects([key])


def _check_takes(segments: QuerySet[Segment]) -> int:
    """Return the takes' one sample rate, once every one is known to have audio.

    Raises:
        TakeMissingError: some have none.
        MixedRatesError: they were rendered by checkpoints of different rates.
    """
    missing, rates = [], set()
    for segment in segments.iterator(chunk_size=1000):
        if segment.take is None or not default_storage.exists(segment.take.audio_key):
            missing.append(segment.pk)
        else:
            rates.add(segment.take.sample_rate)
    if missing:
        raise TakeMissingError(missing)
    if len(rates) != 1:
        raise MixedRatesError(f"The takes have the sample rates {sorted(rates)}.")
    return int(rates.pop())


def _write_file(
    path: Path, form: str, blocks: Iterable[AudioArray], sample_rate: int, claim: HeldClaim
) -> MadeFile:
    """Write the blocks one after the other; only one is in memory at a time."""
    num_samples = 0
    with open_writer(path, form, sample_rate) as writer:
        for block in blocks:
            if claim.is_lost:
                raise ExportUnwantedError
            writer.write(block)
            num_samples += len(block)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return MadeFile(digest, path.stat().st_size, num_samples / sample_rate)


def _blocks(segments: QuerySet[Segment], sample_rate: int) -> Iterator[AudioArray]:
    """Yield the job's audio, float32 [n] with n <= `BLOCK_SAMPLES`."""
    for segment in segments.iterator(chunk_size=1000):
        if segment.take is None:
            raise TakeMissingError([segment.pk])
        try:
            with default_storage.open(segment.take.audio_key) as file:
                yield from _take_blocks(file)
        except (FileNotFoundError, soundfile.LibsndfileError) as error:
            raise TakeMissingError([segment.pk]) from error
        pause = round(segment.pause_after_ms * sample_rate / 1000)
        for start in range(0, pause, BLOCK_SAMPLES):
            yield np.zeros(min(BLOCK_SAMPLES, pause - start), dtype=np.float32)


def _take_blocks(file: IO[bytes]) -> Iterator[AudioArray]:
    with soundfile.SoundFile(file) as audio:
        yield from audio.blocks(BLOCK_SAMPLES, dtype="float32")


def _settle_error(process: WorkerProcess, claim: HeldClaim, error: Exception) -> bool:
    """Decide what an error means for the export; every step is fenced and may be repeated."""
    fence = Claim(claim.pk, claim.token)
    if isinstance(error, (Export.DoesNotExist, ExportUnwantedError)):
        return False
    if isinstance(error, TakeMissingError):
        logger.warning("audio of takes is gone, rendering again: segments=%s", error.segment_ids)
        _render_again(error.segment_ids)
        return transitions.release_export(fence)
    if isinstance(error, SegmentsOpenError):
        return transitions.release_export(fence, delay_seconds=OPEN_DELAY_SECONDS)
    if isinstance(error, MixedRatesError):
        message = f"{error} Submit the job again, so that one model speaks all of it."
        return transitions.fail_export(fence, code="mixed_sample_rates", message=message)
    if isinstance(error, FileTooLongError):
        return transitions.fail_export(fence, code="file_too_long", message=str(error))
    if is_outage(error):
        logger.warning("export waits, not its fault: %s", error)
        if is_disk_full(error):
            process.pause_claims("The disk is full: no file can be made.")
        return transitions.release_export(fence, delay_seconds=OUTAGE_DELAY_SECONDS)
    logger.error("export failed unexpectedly", exc_info=error)
    attempts = Export.objects.filter(pk=claim.pk).values_list("attempts", flat=True).first()
    if attempts is not None and attempts >= settings.MAX_ATTEMPTS:
        return transitions.fail_export(fence, code="unexpected_error", message=UNEXPECTED_MESSAGE)
    return transitions.release_export(fence, delay_seconds=2.0, spend_attempt=True)


def _render_again(segment_ids: list[int]) -> None:
    """Queue segments whose take is lost; a damaged object goes, or it would be used again."""
    takes = Take.objects.filter(segments__in=segment_ids)
    delete_objects(list(takes.values_list("audio_key", flat=True)))
    transitions.reopen_segments(segment_ids)
    transitions.enqueue_segments(segment_ids)
