"""Write what the engine makes of segments while it makes it, for those who listen.

The engine's thread only puts samples into a list; one thread of ours cuts, stores and lists them.
What it cannot write is left out: once the segment is done, its pieces are made from its take.
"""

from __future__ import annotations

import logging
import threading
import uuid
from concurrent.futures import Future, ThreadPoolExecutor

from django.db import connection

from synth.contract import AudioArray, SegmentAudio
from synth.models import LiveChunk
from workers.process.outages import DATABASE_AWAY
from workers.rendering.live_chunks import Cutter, Piece, add_rows, store_object

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
