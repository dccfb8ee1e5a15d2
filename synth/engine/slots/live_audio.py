"""Carry one stream's audio from where it is made to who listens, while it is being made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from queue import SimpleQueue
from types import TracebackType

import torch
from torch import Tensor

from synth.contract import AudioArray, SegmentAudio
from synth.engine.codec.streams.chunk_schedule import ChunkSchedule
from synth.engine.codec.streams.decoder import CodecStream
from synth.engine.errors import RenderCancelledError


class LiveAudio:
    """Hold what a stream has handed on: codes to the codec, audio to its listener.

    `codec` and `waves` belong to the codec's thread, the rest to the one that makes codes.

    Args:
        on_audio: is given the samples in place of `pieces`, by the codec's thread: it returns at
            once and raises nothing.
    """

    def __init__(
        self, schedule: ChunkSchedule, on_audio: Callable[[AudioArray], None] | None = None
    ) -> None:
        self._sizes = schedule.sizes()
        self._wanted = next(self._sizes)
        self._handed: list[Tensor] = []  # codes [K, n] on the device
        self.num_handed = 0
        self.codec: CodecStream | None = None
        self.waves: list[AudioArray] = []
        self.pieces: SimpleQueue[AudioArray | None] = SimpleQueue()  # None: the end
        self._on_audio = on_audio or self.pieces.put

    def next_chunk(self, num_frames: int) -> int:
        """Return how many of `num_frames` frames made are the next chunk; 0 for too few yet."""
        return self._wanted if num_frames - self.num_handed >= self._wanted else 0

    def note_handed(self, codes: Tensor) -> None:
        """Remember the codes of a chunk that goes to the codec."""
        self._handed.append(codes)
        self.num_handed += codes.shape[1]
        self._wanted = next(self._sizes)

    def agrees_with(self, codes: Tensor) -> bool:
        """Return whether codes [K, T], made anew, begin with those that were handed on."""
        if not self._handed:
            return True
        handed = torch.cat(self._handed, dim=1)
        return codes.shape[1] >= handed.shape[1] and torch.equal(
            handed, codes[:, : handed.shape[1]]
        )

    def give(self, wave: AudioArray) -> None:
        """Hand the next samples to the listener."""
        self.waves.append(wave)
        self._on_audio(wave)


class AudioStream(Iterator[AudioArray]):
    """Iterate over a segment's audio while it is being made: float32 [N] at `sample_rate`.

    Iterating raises the EngineError that ends the request; frames just made may not be heard then.
    A stream that is closed, or dropped before its end, gives its slot free at the next frame.
    """

    def __init__(self, live: LiveAudio, future: Future[SegmentAudio], sample_rate: int) -> None:
        self.sample_rate = sample_rate
        self._pieces, self._future = live.pieces, future
        self._is_over = False
        pieces = live.pieces
        future.add_done_callback(lambda _: pieces.put(None))

    def __next__(self) -> AudioArray:
        if self._is_over:
            raise StopIteration
        piece = self._pieces.get()
        if piece is not None:
            return piece
        self._is_over = True
        if not self._future.cancelled():
            self._future.result()
        raise StopIteration

    @property
    def result(self) -> SegmentAudio:
        """Return the whole segment with its codes and finish reason; waits for its end.

        Raises:
            EngineError: what ended the request; RenderCancelledError after `close`.
        """
        try:
            return self._future.result()
        except CancelledError as error:
            raise RenderCancelledError("The stream was closed before its end.") from error

    def close(self) -> None:
        """Cancel what is unfinished; iterating ends."""
        self._future.cancel()
        self._is_over = True

    def __enter__(self) -> AudioStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self._future.cancel()
