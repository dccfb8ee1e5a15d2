"""Write what the engine makes of segments while it makes it, for those who listen.

The engine's thread only puts samples into a list; one thread of ours cuts, stores and lists them.
What it cannot write is left out: once the segment is done, its pieces are made from its take.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import uuid
from concurrent.futures import Future, ThreadPoolExecutor

import soundfile
from django.core.files.storage import default_storage
from django.db import connection
from django.db.models import Exists, OuterRef, Q, QuerySet

from synth.contract import AudioArray, SegmentAudio
from synth.models import LiveChunk, RenderJob, Segment, SweepTurn, Take
from ttsweb import leases
from workers.errors import DATABASE_AWAY, is_outage
from workers.rendering.live_chunks import Cutter, Piece, add_rows, heard_rate, store_object
from workers.upkeep.turns import take_turn

logger = logging.getLogger(__name__)

ROWS_AT_ONCE = 8  # pieces that are listed in one step: the first is heard no later than the last


class HeardSegment:
    """One attempt at a segment whose audio is written while it is made.

    `attempt` is also to be the id of the take that comes of it.
    """

    def __init__(
        self,
        writer: LiveWriter,
        *,
        job_id: uuid.UUID,
        segment_id: int,
        sample_rate: int,
        heard_rate: int | None,
    ) -> None:
        self.attempt = uuid.uuid4()
        self.is_broken = False  # a piece is missing, so that none may follow
        self.cutter = Cutter(
            job_id=job_id,
            segment_id=segment_id,
            attempt=self.attempt,
            sample_rate=sample_rate,
            heard_rate=heard_rate,
        )
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
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[HeardSegment, AudioArray | None]] = []
        self._is_running = False
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="live")

    def begin(
        self, *, job_id: uuid.UUID, segment_id: int, sample_rate: int, heard_rate: int | None
    ) -> HeardSegment:
        """Return where the samples of a new attempt at a segment are to go.

        Args:
            sample_rate: of the samples, in Hz.
            heard_rate: of what is written, in Hz; None is the same.
        """
        return HeardSegment(
            self,
            job_id=job_id,
            segment_id=segment_id,
            sample_rate=sample_rate,
            heard_rate=heard_rate,
        )

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
        """Write until nothing waits."""
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
        rows: list[LiveChunk] = []
        for heard, piece in pieces:
            if heard.is_broken:
                continue
            try:
                rows.append(store_object(piece))
            except OSError as error:
                heard.is_broken = True
                logger.warning("cannot store live audio: segment=%s %s", piece.segment_id, error)
        try:
            if rows:
                add_rows(rows)
        except DATABASE_AWAY as error:
            connection.close()
            for heard, _ in pieces:
                heard.is_broken = True
            logger.warning("cannot list live audio, the database does not answer: %s", error)


TURN = "live"
TURN_SECONDS = 10.0  # without a sign of life another worker goes on
SEGMENTS_AT_ONCE = 16
PIECES_AT_ONCE = 16
BLOCK_SAMPLES = 1 << 16
WRITING = dt.timedelta(seconds=3)  # its worker may still be writing the end of what it rendered


class LiveFiller:
    """Look for missing pieces and make them, in a thread of its own; one run goes at a time."""

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping
        self._lock = threading.Lock()
        self._is_running = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="live-fill")

    def look(self) -> None:
        """Have this process look now; never waits."""
        with self._lock:
            if self._is_running:
                return
            self._is_running = True
        try:
            self._thread.submit(self._run)
        except RuntimeError:
            logger.debug("live audio is not made, as the worker is stopping")

    def _run(self) -> None:
        try:
            fill_missing(self._stopping)
        except Exception as error:
            if isinstance(error, DATABASE_AWAY):
                connection.close()
            if is_outage(error):
                logger.warning("live audio waits for an outage to end: %s", error)
            else:
                logger.exception("cannot make live audio from takes")
        finally:
            with self._lock:
                self._is_running = False


def missing() -> QuerySet[Segment]:
    """Return the finished segments of jobs that are listened to whose take is not yet in pieces."""
    # By themselves, through an index: these jobs are few, and finished segments may be millions.
    heard = RenderJob.objects.filter(live_requested_at__isnull=False).order_by()
    job_ids = list(heard.values_list("pk", flat=True))
    own = LiveChunk.objects.filter(segment=OuterRef("pk"), attempt=OuterRef("take_id"))
    being_written = Q(Exists(own), finished_at__gt=leases.database_now() - WRITING)
    return (
        Segment.objects.filter(
            ~Exists(own.filter(is_last=True)),
            status=Segment.Status.DONE,
            take__isnull=False,
            job__in=job_ids,
        )
        .exclude(being_written)
        .order_by("job__priority", "chapter__index", "index", "pk")
        .defer("job__text")  # of a book it is long
    )


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
            rows = list(
                missing().select_related("take", "job").defer("job__text")[:SEGMENTS_AT_ONCE]
            )
            if not rows:
                break
            for segment in rows:
                fill_segment(segment)
                _set_turn(TURN_SECONDS)
                count += 1
    finally:
        _set_turn(0.0)
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
    cutter = Cutter(
        job_id=segment.job_id,
        segment_id=segment.pk,
        attempt=take.pk,
        sample_rate=take.sample_rate,
        heard_rate=heard_rate(segment.job.format, segment.job.sample_rate),
    )
    try:
        _fill(cutter, take, listed)
    except (FileNotFoundError, soundfile.LibsndfileError):
        logger.warning(
            "live audio ends early, as a take's audio is no longer stored: segment=%s", segment.pk
        )
        _store([cutter.end()], set())


def _fill(cutter: Cutter, take: Take, listed: set[int]) -> None:
    with default_storage.open(take.audio_key) as file, soundfile.SoundFile(file) as audio:
        for block in audio.blocks(BLOCK_SAMPLES, dtype="float32"):
            _store(cutter.push(block), listed)
        _store([cutter.end()], listed)


def _store(pieces: list[Piece], listed: set[int]) -> None:
    wanted = [piece for piece in pieces if piece.index not in listed]
    for start in range(0, len(wanted), PIECES_AT_ONCE):
        add_rows([store_object(piece) for piece in wanted[start : start + PIECES_AT_ONCE]])


def _set_turn(seconds: float) -> None:
    until = leases.database_now() + dt.timedelta(seconds=seconds)
    SweepTurn.objects.filter(pk=TURN).update(next_at=until)
