"""Write what the engine makes of segments while it makes it, in small pieces, for those who listen.

The engine's thread only puts samples into a list; one thread of ours cuts them into PCM objects,
stores these and lists them in rows. What it cannot write is left out: once the segment is done, its
pieces are made from its take. Where the cuts lie depends on nothing but the sample rate. So
whoever writes the pieces of one take, while it is made or afterwards, writes the same ones, and the
first of two rows stays.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import soundfile
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import IntegrityError, connection, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from synth.contract import AudioArray, SegmentAudio
from synth.models import LiveChunk, RenderJob, Segment
from ttsweb import leases
from ttsweb.storage import delete_objects, fetch_object
from workers.kinds import SITE_AWAY, postpone_turn, retry_while_away, take_turn

logger = logging.getLogger(__name__)

LIVE_FOLDER = "live"
_FIRST_SECONDS = (0.1, 0.2)  # so that sound starts soon; then
_SECONDS = 0.5
PATIENCE_SECONDS = 5.0  # of one listing, for a database that is away
_FULL_SCALE = 2**15


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Hold one piece of an attempt at a segment, float32 [N]; N may be 0 for the last one."""

    job_id: uuid.UUID
    segment_id: int
    attempt: uuid.UUID
    index: int
    samples: AudioArray
    sample_rate: int
    is_last: bool


class Cutter:
    """Cut the samples of one attempt, which come in blocks of any size, into its pieces.

    Args:
        sample_rate: of what comes, and of the pieces, in Hz.
    """

    def __init__(
        self,
        *,
        job_id: uuid.UUID,
        segment_id: int,
        attempt: uuid.UUID,
        sample_rate: int,
    ) -> None:
        self.job_id, self.segment_id, self.attempt = job_id, segment_id, attempt
        self._sample_rate = sample_rate
        self._left = np.empty(0, dtype=np.float32)
        self._index = 0

    def push(self, samples: AudioArray) -> list[Piece]:
        """Take the next samples, float32 [n]; return the pieces that are complete with them."""
        self._left = np.concatenate([self._left, samples])
        pieces = []
        # Never all of it: the last piece is the one that says so, and it comes with `end`.
        while len(self._left) > (length := piece_samples(self._index, self._sample_rate)):
            pieces.append(self._piece(self._left[:length], is_last=False))
            self._left = self._left[length:]
        return pieces

    def end(self) -> Piece:
        """Return the last piece, which may be a little longer than the others."""
        return self._piece(self._left, is_last=True)

    def _piece(self, samples: AudioArray, *, is_last: bool) -> Piece:
        names, index = (self.job_id, self.segment_id, self.attempt), self._index
        self._index += 1
        return Piece(*names, index, samples, self._sample_rate, is_last)


def piece_samples(index: int, sample_rate: int) -> int:
    """Return how many samples the piece of this index has, unless it is the last."""
    seconds = _FIRST_SECONDS[index] if index < len(_FIRST_SECONDS) else _SECONDS
    return round(seconds * sample_rate)


def to_pcm(samples: AudioArray) -> bytes:
    """Return mono audio float32 [N] as s16le; samples beyond full scale are cut to it."""
    whole = np.rint(np.clip(samples, -1.0, 1.0) * _FULL_SCALE)
    return bytes(np.minimum(whole, _FULL_SCALE - 1).astype("<i2").tobytes())


def store_object(piece: Piece) -> LiveChunk:
    """Write a piece's object; return its row, which is still to be written.

    Raises:
        OSError: the storage cannot be written; nothing is left behind.
    """
    key = ""
    if len(piece.samples):
        name = f"{LIVE_FOLDER}/{piece.job_id}/{uuid.uuid4().hex}.pcm"
        key = default_storage.save(name, ContentFile(to_pcm(piece.samples)))
    return LiveChunk(
        segment_id=piece.segment_id,
        attempt=piece.attempt,
        index=piece.index,
        key=key,
        num_samples=len(piece.samples),
        sample_rate=piece.sample_rate,
        is_last=piece.is_last,
    )


def add_rows(rows: Sequence[LiveChunk]) -> None:
    """List stored pieces; objects of those that are listed already, or not wanted, go.

    Pieces of a segment that is gone are not wanted. A database that is busy is tried again for a
    moment: who listens would wait much longer for the pieces that are made from the take.

    Raises:
        OperationalError, InterfaceError: the database stays away; the objects are gone, too.
    """
    try:
        listed = retry_while_away(partial(_list, rows), seconds=PATIENCE_SECONDS)
    except IntegrityError:
        if len(rows) > 1:
            for row in rows:
                add_rows([row])
            return
        listed = set()
    except BaseException:
        delete_objects([row.key for row in rows if row.key])
        raise
    delete_objects([row.key for row in rows if row.key and row.key not in listed])


def write_pieces(pieces: Sequence[Piece]) -> set[uuid.UUID]:
    """Store and list pieces; return the attempts of which one cannot be stored.

    Raises:
        OperationalError, InterfaceError: the database stays away.
    """
    rows: list[LiveChunk] = []
    broken: set[uuid.UUID] = set()
    for piece in pieces:
        if piece.attempt in broken:
            continue
        try:
            rows.append(store_object(piece))
        except OSError as error:
            broken.add(piece.attempt)
            logger.warning("cannot store live audio: segment=%s %s", piece.segment_id, error)
    if rows:
        add_rows(rows)
    return broken


def _list(rows: Sequence[LiveChunk]) -> set[str]:
    """Write rows unless they are there; return the keys that their attempts now list."""
    with transaction.atomic():
        LiveChunk.objects.bulk_create(rows, ignore_conflicts=True)
        listed = LiveChunk.objects.filter(
            segment__in={row.segment_id for row in rows}, attempt__in={row.attempt for row in rows}
        )
        return set(listed.values_list("key", flat=True))


ROWS_AT_ONCE = 8  # pieces that are listed in one step: the first is heard no later than the last


class HeardSegment:
    """One attempt at a segment whose audio is written while it is made."""

    def __init__(self, writer: LiveWriter, cutter: Cutter) -> None:
        self.cutter = cutter
        self.is_broken = False  # a piece is missing, so that none may follow
        self._writer = writer

    def take(self, samples: AudioArray) -> None:
        """Take the next samples, float32 [n]; the engine's thread calls this."""
        self._writer.put(self, samples)

    def end(self, future: Future[SegmentAudio]) -> None:
        """Note that all samples have come, or that the attempt has failed."""
        if not future.cancelled() and future.exception() is None:
            self._writer.put(self, None)


class LiveWriter:
    """Write the pieces of all segments of this process that are listened to, in their order.

    What waits is bounded by what the engine renders at once: it holds these samples in any case.

    Args:
        write: stores and lists pieces; returns the attempts of which one is missing.
    """

    def __init__(self, write: Callable[[Sequence[Piece]], set[uuid.UUID]]) -> None:
        self._write_pieces = write
        self._waiting: list[tuple[HeardSegment, AudioArray | None]] = []
        self._is_running = False
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="live")

    def put(self, heard: HeardSegment, samples: AudioArray | None) -> None:
        """Add samples, or None for the end; never waits."""
        with self._lock:
            self._waiting.append((heard, samples))
            is_due, self._is_running = not self._is_running, True
        if is_due:
            try:
                self._thread.submit(self._run)
            except RuntimeError:
                logger.debug("live audio is not written, as the worker is stopping")

    def _run(self) -> None:
        while True:
            with self._lock:
                waiting, self._waiting = self._waiting, []
                if not waiting:
                    self._is_running = False
                    return
            try:
                self._write(waiting)
            except Exception:
                logger.exception("cannot write live audio")
                for heard, _ in waiting:
                    heard.is_broken = True

    def _write(self, waiting: list[tuple[HeardSegment, AudioArray | None]]) -> None:
        pieces: list[tuple[HeardSegment, Piece]] = []
        for heard, samples in waiting:
            found = [heard.cutter.end()] if samples is None else heard.cutter.push(samples)
            pieces += [(heard, piece) for piece in found]
        # What comes first in the text is heard first; a segment's own pieces stay in their order.
        pieces.sort(key=lambda pair: pair[1].segment_id)
        for start in range(0, len(pieces), ROWS_AT_ONCE):
            self._store(pieces[start : start + ROWS_AT_ONCE])

    def _store(self, pieces: list[tuple[HeardSegment, Piece]]) -> None:
        wanted = [piece for heard, piece in pieces if not heard.is_broken]
        if not wanted:
            return
        try:
            broken = self._write_pieces(wanted)
        except SITE_AWAY as error:
            connection.close()
            broken = {piece.attempt for piece in wanted}
            logger.warning("cannot list live audio, the site does not answer: %s", error)
        for heard, piece in pieces:
            heard.is_broken = heard.is_broken or piece.attempt in broken


TURN = "live"
TURN_SECONDS = 10.0  # without a sign of life another worker goes on
SEGMENTS_AT_ONCE = 16
PIECES_AT_ONCE = 16
BLOCK_SAMPLES = 1 << 16
WRITING = dt.timedelta(seconds=3)  # its worker may still be writing the end of what it rendered


def missing() -> QuerySet[Segment]:
    """Return the finished segments of jobs that are listened to whose take is not yet in pieces."""
    # By themselves, through an index: these jobs are few, and finished segments may be millions.
    heard = RenderJob.objects.filter(live_requested_at__isnull=False).order_by()
    job_ids = list(heard.values_list("pk", flat=True))
    own = LiveChunk.objects.filter(segment=OuterRef("pk"), attempt=OuterRef("take_id"))
    being_written = Q(Exists(own), finished_at__gt=leases.database_now() - WRITING)
    done = Segment.objects.filter(status=Segment.Status.DONE, take__isnull=False)
    rows = done.filter(~Exists(own.filter(is_last=True)), job__in=job_ids).exclude(being_written)
    return rows.order_by("job__priority", "chapter__index", "index", "pk")


def fill_missing(stopping: threading.Event) -> int:
    """Make all missing pieces, unless another worker does; return of how many segments.

    Raises:
        OSError: the storage cannot be read or written now.
    """
    if not missing().exists() or take_turn(TURN, seconds=TURN_SECONDS) is None:
        return 0
    count = 0
    try:
        while not stopping.is_set():
            rows = list(missing().select_related("take")[:SEGMENTS_AT_ONCE])
            if not rows:
                break
            for segment in rows:
                fill_segment(segment)
                postpone_turn(TURN, seconds=TURN_SECONDS)
                count += 1
    finally:
        postpone_turn(TURN, seconds=0.0)
    logger.info("live audio made from takes: segments=%d", count)
    return count


def fill_segment(segment: Segment) -> None:
    """Write those pieces of a finished segment that are not listed yet.

    A take whose object is gone has one empty piece: whoever listens goes on behind it.

    Raises:
        OSError: the storage cannot be read or written now.
    """
    take = segment.take
    if take is None:
        return
    rows = LiveChunk.objects.filter(segment=segment, attempt=take.pk)
    listed = set(rows.values_list("index", flat=True))
    names: dict[str, Any] = {"job_id": segment.job_id, "segment_id": segment.pk}
    cutter = Cutter(**names, attempt=take.pk, sample_rate=take.sample_rate)
    try:
        with soundfile.SoundFile(fetch_object(take.audio_key)) as audio:
            for block in audio.blocks(BLOCK_SAMPLES, dtype="float32"):
                _store(cutter.push(block), listed)
            _store([cutter.end()], listed)
    except (FileNotFoundError, soundfile.LibsndfileError):
        sentence = "live audio ends early, as a take's audio is no longer stored: segment=%s"
        logger.warning(sentence, segment.pk)
        _store([cutter.end()], set())


def _store(pieces: list[Piece], listed: set[int]) -> None:
    wanted = [piece for piece in pieces if piece.index not in listed]
    for start in range(0, len(wanted), PIECES_AT_ONCE):
        add_rows([store_object(piece) for piece in wanted[start : start + PIECES_AT_ONCE]])
