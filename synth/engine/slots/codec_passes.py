"""Decode finished segments and chunks of streams in passes whose memory is bounded."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from synth.contract import AudioArray, SegmentAudio
from synth.engine.codec import CodecDecoder
from synth.engine.codec.streams.decoder import CodecStream, decode_streams
from synth.engine.codec.streams.graphs import StreamGraphs
from synth.engine.device_lane import DeviceLane
from synth.engine.errors import EngineError
from synth.engine.slots.out_of_memory import free_cached_memory, is_out_of_memory
from synth.engine.slots.segment_audio import FinishedCodes, LiveChunk, give, segment_audio

logger = logging.getLogger(__name__)

PIECE_FRAMES = 32  # of a segment between which streams get their chunks; 1.5 s of audio
LEAST_FRAMES = 16  # of a pass, below which memory that runs out ends a request
GROW_AFTER_PASSES = 16
_SIMILAR = 0.75  # the shortest of a pass against the longest: padding is computed as well

T = TypeVar("T")
_ALIGNMENT = 64  # bytes between the starts of tensors in the buffer
_LEAST_BYTES = 1 << 20


class CodecPasses:
    """Own the decoder's passes; all calls come from one thread.

    After memory ran out passes are smaller for a while. In strict mode every segment is decoded
    alone and in pieces of one size, so that its samples depend on nothing else.
    """

    def __init__(
        self, decoder: CodecDecoder, lane: DeviceLane, *, pass_frames: int, is_strict: bool
    ) -> None:
        self._decoder, self._lane, self._is_strict = decoder, lane, is_strict
        self._host = HostCopy(decoder.device)
        self.graphs: StreamGraphs | None = None  # recorded chunks of streams
        self._rate = decoder.config.sample_rate
        self._most = self._frames = pass_frames
        self._good_passes = 0

    def choose(self, waiting: Sequence[FinishedCodes], *, in_pieces: bool) -> list[FinishedCodes]:
        """Return the next pass: of the most urgent class the oldest, and others of its length.

        Args:
            in_pieces: streams wait for their turn between the pieces of this pass.
        """
        urgent = min(item.priority for item in waiting)
        first, *others = [item for item in waiting if item.priority == urgent]
        group, shortest, longest = [first], first.num_frames, first.num_frames
        most = min(self._frames, PIECE_FRAMES) if in_pieces else self._frames
        for item in [] if self._is_strict else others:
            low, high = min(shortest, item.num_frames), max(longest, item.num_frames)
            if high * (len(group) + 1) <= most and low >= _SIMILAR * high:
                group.append(item)
                shortest, longest = low, high
        return group

    def decode(
        self, group: Sequence[FinishedCodes], between: Callable[[], None] | None
    ) -> list[SegmentAudio | Exception]:
        """Return each segment's answer; an error is that of its own segment alone.

        Args:
            between: called between the pieces of the pass; None takes it in one piece.
        """
        answers = self._attempt(partial(self._answers, group, between), len(group))
        if answers is None:
            return [answer for item in group for answer in self.decode([item], between)]
        return [answers] * len(group) if isinstance(answers, Exception) else answers

    def decode_chunks(self, chunks: Sequence[LiveChunk]) -> None:
        """Decode one chunk of each of several streams; hand on the audio, or what ends a stream."""
        started_at = time.perf_counter()
        decoded = self._attempt(partial(self._decoded_chunks, chunks), len(chunks))
        if decoded is None:
            for chunk in chunks:
                self.decode_chunks([chunk])
        elif isinstance(decoded, Exception):
            give(chunks[0].future, decoded)
        else:
            for chunk, (wave, finished) in zip(chunks, decoded, strict=True):
                self._hand_on(chunk, wave, finished, started_at)

    def _hand_on(
        self,
        chunk: LiveChunk,
        wave: AudioArray,
        finished: FinishedCodes | None,
        started_at: float,
    ) -> None:
        if wave.size:
            chunk.live.give(wave)
        if finished is not None:
            whole = np.concatenate([np.empty(0, np.float32), *chunk.live.waves])
            answer = segment_audio(finished, whole, self._rate, codec_started_at=started_at)
            give(chunk.future, answer)

    def _answers(
        self, group: Sequence[FinishedCodes], between: Callable[[], None] | None
    ) -> list[SegmentAudio | Exception]:
        started_at = time.perf_counter()
        codes = [item.codes for item in group]
        for item in group:
            self._lane.wait_for(item.made)
            self._lane.adopt(item.codes)
        if between is None and not self._is_strict:
            waves = self._decoder.decode(codes, max_batch_frames=self._frames)
        else:
            waves = self._in_pieces(codes, between)
        audio, finished = self._on_host(waves, group)
        return [
            segment_audio(item, wave, self._rate, codec_started_at=started_at)
            for item, wave in zip(finished, audio, strict=True)
        ]

    def _on_host(
        self, waves: Sequence[Tensor], items: Sequence[FinishedCodes]
    ) -> tuple[list[AudioArray], list[FinishedCodes]]:
        """Return samples and segments with their codes on the host, having waited once."""
        arrays = self._host.take([*waves, *(item.codes for item in items)])
        codes = [torch.from_numpy(array) for array in arrays[len(waves) :]]
        finished = [replace(item, codes=own) for item, own in zip(items, codes, strict=True)]
        return arrays[: len(waves)], finished

    def _in_pieces(
        self, codes: Sequence[Tensor], between: Callable[[], None] | None
    ) -> list[Tensor]:
        """Decode segments piece by piece, their samples side by side until all have ended."""
        streams = [CodecStream(self._decoder) for _ in codes]
        waves: list[list[Tensor]] = [[] for _ in codes]
        graphs = None if self._is_strict else self.graphs
        for start in range(0, max(matrix.shape[1] for matrix in codes), PIECE_FRAMES):
            if start and between is not None:
                between()
            pieces = [matrix[:, start : start + PIECE_FRAMES] for matrix in codes]
            decoded = decode_streams(
                streams, pieces, max_batch_frames=self._piece_limit, graphs=graphs
            )
            for parts, wave in zip(waves, decoded, strict=True):
                parts.append(wave)
        empty = torch.empty(0, device=self._decoder.device)
        return [torch.cat(parts) if parts else empty for parts in waves]

    def _decoded_chunks(
        self, chunks: Sequence[LiveChunk]
    ) -> list[tuple[AudioArray, FinishedCodes | None]]:
        """Return each chunk's samples, and on the host what is finished with it."""
        for chunk in chunks:
            self._lane.wait_for(chunk.made)
            self._lane.adopt(chunk.codes)
        ends = [chunk.finished for chunk in chunks if chunk.finished is not None]
        for item in ends:
            self._lane.adopt(item.codes)
        streams = [self._stream(chunk) for chunk in chunks]
        marks = [stream.mark() for stream in streams]
        codes = [chunk.codes for chunk in chunks]
        waves = decode_streams(streams, codes, max_batch_frames=self._frames, graphs=self.graphs)
        try:
            audio, on_host = self._on_host(waves, ends)
        except Exception:
            for stream, mark in zip(streams, marks, strict=True):
                stream.rewind(mark)  # what is tried again begins where this did
            raise
        finished = iter(on_host)
        return [
            (wave, None if chunk.finished is None else next(finished))
            for chunk, wave in zip(chunks, audio, strict=True)
        ]

    def _stream(self, chunk: LiveChunk) -> CodecStream:
        if chunk.live.codec is None:
            chunk.live.codec = CodecStream(self._decoder)
        return chunk.live.codec

    @property
    def _piece_limit(self) -> int:
        return PIECE_FRAMES if self._is_strict else self._frames

    def _attempt(self, work: Callable[[], T], size: int) -> T | Exception | None:
        """Return what `work` returns, its error, or None where smaller passes may succeed.

        Args:
            size: the requests in it; one that fails alone for another reason than memory is over.
        """
        try:
            result = work()
        except Exception as error:
            ran_out = is_out_of_memory(error)
            can_shrink = ran_out and self._frames > LEAST_FRAMES and not self._is_strict
            if not isinstance(error, EngineError):
                logger.warning("a codec pass of %d requests failed", size, exc_info=True)
            if size == 1 and not can_shrink:
                return error
        else:
            self._grow()
            return result
        # Here and not above: the error would keep the memory of what failed.
        if ran_out:
            self._frames, self._good_passes = max(self._frames // 2, LEAST_FRAMES), 0
            free_cached_memory(self._decoder.device)
        return None

    def _grow(self) -> None:
        self._good_passes += 1
        if self._good_passes >= GROW_AFTER_PASSES and self._frames < self._most:
            self._frames, self._good_passes = min(2 * self._frames, self._most), 0


class HostCopy:
    """Copy tensors through one pinned buffer, which the device can write while the host goes on.

    One thread at a time may use it. Without a CUDA device the tensors are copied as they are.
    """

    def __init__(self, device: torch.device, *, buffered: bool | None = None) -> None:
        """Prepare the copy; the buffer grows with what it is given.

        Args:
            buffered: go through the buffer, by default on CUDA.
        """
        self._device = device
        self._is_buffered = device.type == "cuda" if buffered is None else buffered
        self._buffer = torch.empty(0, dtype=torch.uint8)

    def take(self, tensors: Sequence[Tensor]) -> list[npt.NDArray[Any]]:
        """Return the tensors as arrays, each in memory of its own.

        What was put on the current stream before has come; work put there later is not waited for.
        """
        if not self._is_buffered:
            return [np.array(_on_host(tensor).numpy()) for tensor in tensors]
        views = self._views(tensors)
        for view, tensor in zip(views, tensors, strict=True):
            view.copy_(tensor, non_blocking=True)
        self._wait()
        return [np.array(view.numpy()) for view in views]

    def _views(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return a part of the buffer for each tensor, as large and of its kind."""
        sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
        starts = [0]
        for size in sizes:
            starts.append(starts[-1] + math.ceil(size / _ALIGNMENT) * _ALIGNMENT)
        if starts[-1] > self._buffer.numel():
            room = max(_LEAST_BYTES, 1 << (starts[-1] - 1).bit_length())
            pinned = self._device.type == "cuda"
            self._buffer = torch.empty(room, dtype=torch.uint8, pin_memory=pinned)
        parts = (self._buffer[a : a + n] for a, n in zip(starts, sizes, strict=False))
        return [
            part.view(tensor.dtype).view(tensor.shape)
            for part, tensor in zip(parts, tensors, strict=True)
        ]

    def _wait(self) -> None:
        if self._device.type == "cuda":
            # The thread sleeps meanwhile: a core that spins is one that the frames' thread lacks.
            event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]  # torch's own
            event.record(torch.cuda.current_stream(self._device))
            event.synchronize()


def _on_host(tensor: Tensor) -> Tensor:
    """Return a tensor of the host, a copy of one that is elsewhere."""
    return tensor if tensor.device.type == "cpu" else tensor.cpu()
