"""Cut a segment's audio into small PCM objects, and list them in rows for those who listen.

Where the cuts lie depends on nothing but the sample rates. So whoever writes the pieces of one
take, while it is made or afterwards, writes the same ones, and the first of two rows stays.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from av.filter import Graph
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import IntegrityError, transaction

from synth.contract import AudioArray
from synth.formats import BOOK_FORMATS, LIVE_FORMATS
from synth.models import LiveChunk
from voices.objects import delete_objects
from workers.audio.filter_graph import push, ready, resampling_graph
from workers.errors import retry_while_away

LIVE_FOLDER = "live"
_FIRST_SECONDS = (0.1, 0.2)  # so that sound starts soon; then
_SECONDS = 0.5
PATIENCE_SECONDS = 5.0  # of one listing, for a database that is away
_FULL_SCALE = 32767.0  # what libsndfile takes 1.0 for when it writes 16-bit files


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


def heard_rate(form: str, sample_rate: int | None) -> int | None:
    """Return the rate in Hz at which a job of this format is heard; None is that of its takes."""
    return sample_rate or (BOOK_FORMATS[form].rate if form in LIVE_FORMATS else None)


class Cutter:
    """Cut the samples of one attempt, which come in blocks of any size, into its pieces.

    Args:
        sample_rate: of what comes, in Hz.
        heard_rate: of the pieces, in Hz; None is the same.
    """

    def __init__(
        self,
        *,
        job_id: uuid.UUID,
        segment_id: int,
        attempt: uuid.UUID,
        sample_rate: int,
        heard_rate: int | None = None,
    ) -> None:
        self.job_id, self.segment_id, self.attempt = job_id, segment_id, attempt
        self._sample_rate = heard_rate or sample_rate
        self._resampler = Resampler(sample_rate, self._sample_rate)
        self._left = np.empty(0, dtype=np.float32)
        self._index = 0

    def push(self, samples: AudioArray) -> list[Piece]:
        """Take the next samples, float32 [n]; return the pieces that are complete with them."""
        self._left = np.concatenate([self._left, *self._resampler.push(samples)])
        pieces = []
        # Never all of it: the last piece is the one that says so, and it comes with `end`.
        while len(self._left) > (length := piece_samples(self._index, self._sample_rate)):
            pieces.append(self._piece(self._left[:length], is_last=False))
            self._left = self._left[length:]
        return pieces

    def end(self) -> Piece:
        """Return the last piece, which may be a little longer than the others."""
        self._left = np.concatenate([self._left, *self._resampler.end()])
        return self._piece(self._left, is_last=True)

    def _piece(self, samples: AudioArray, *, is_last: bool) -> Piece:
        piece = Piece(
            self.job_id,
            self.segment_id,
            self.attempt,
            self._index,
            samples,
            self._sample_rate,
            is_last,
        )
        self._index += 1
        return piece


class Resampler:
    """Change the rate of one attempt's samples as they come, as its file would."""

    def __init__(self, rate: int, new_rate: int) -> None:
        self._rate, self._new_rate = rate, new_rate
        self._graph: Graph | None = None  # made with the first samples: most need none
        self._num_in = self._num_out = 0

    def push(self, samples: AudioArray) -> list[AudioArray]:
        """Take the next samples, float32 [n]; return what has become of them so far."""
        if self._rate == self._new_rate:
            return [samples]
        if not len(samples):
            return []
        if self._graph is None:
            self._graph = resampling_graph(self._rate, self._new_rate)
        push(self._graph, samples, self._rate, self._num_in)
        self._num_in += len(samples)
        return self._take_made(self._graph)

    def end(self) -> list[AudioArray]:
        """Return what is left, so that of N samples come round(N * new_rate / rate)."""
        if self._graph is None:
            return []
        self._graph.push(None)
        missing = round(self._num_in * self._new_rate / self._rate) - self._num_out
        rest = np.concatenate([np.empty(0, np.float32), *self._take_made(self._graph)])[:missing]
        return [rest, np.zeros(missing - len(rest), np.float32)]

    def _take_made(self, graph: Graph) -> list[AudioArray]:
        made = list(ready(graph))
        self._num_out += sum(map(len, made))
        return made


def piece_samples(index: int, sample_rate: int) -> int:
    """Return how many samples the piece of this index has, unless it is the last."""
    seconds = _FIRST_SECONDS[index] if index < len(_FIRST_SECONDS) else _SECONDS
    return round(seconds * sample_rate)


def to_pcm(samples: AudioArray) -> bytes:
    """Return mono audio float32 [N] as s16le; samples beyond full scale are cut to it."""
    whole = np.rint(np.clip(samples, -1.0, 1.0) * _FULL_SCALE)
    return bytes(whole.astype("<i2").tobytes())


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


def _list(rows: Sequence[LiveChunk]) -> set[str]:
    """Write rows unless they are there; return the keys that their attempts now list."""
    with transaction.atomic():
        LiveChunk.objects.bulk_create(rows, ignore_conflicts=True)
        listed = LiveChunk.objects.filter(
            segment__in={row.segment_id for row in rows}, attempt__in={row.attempt for row in rows}
        )
        return set(listed.values_list("key", flat=True))
