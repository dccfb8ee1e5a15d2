"""Turn codes into audio on an own thread, beside the one that makes codes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from synth.contract import AudioArray, CodesArray, SegmentAudio, Timings
from synth.engine.codec.halves import CodecDecoder
from synth.engine.codec.load import uses_kernels
from synth.engine.codec.streams import (
    Capture,
    ChunkSchedule,
    CodecStream,
    CudaCapture,
    StreamGraphs,
    decode_streams,
)
from synth.engine.device import DeviceLane, HostCopy, free_cached_memory, is_out_of_memory
from synth.engine.errors import EngineClosedError, EngineError
from synth.engine.slots.requests import MadeCodes, resolve

PIECE_FRAMES = 32  # of a segment between which streams get their chunks; 1.5 s of audio
LEAST_FRAMES = 16  # of a pass, below which memory that runs out ends a request
GROW_AFTER_PASSES = 16
_SIMILAR = 0.75  # the shortest of a pass against the longest: padding is computed as well

T = TypeVar("T")
logger = logging.getLogger(__name__)
_CLOSED = "The engine was closed before this request was done."


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

    def choose(self, waiting: Sequence[MadeCodes], *, in_pieces: bool) -> list[MadeCodes]:
        """Return the next pass: of the most urgent class the oldest, and others of its length.

        Args:
            in_pieces: streams wait for their turn between the pieces of this pass.
        """
        urgent = min(item.request.priority for item in waiting)
        first, *others = [item for item in waiting if item.request.priority == urgent]
        group, shortest, longest = [first], first.num_frames, first.num_frames
        most = min(self._frames, PIECE_FRAMES) if in_pieces else self._frames
        for item in [] if self._is_strict else others:
            low, high = min(shortest, item.num_frames), max(longest, item.num_frames)
            if high * (len(group) + 1) <= most and low >= _SIMILAR * high:
                group.append(item)
                shortest, longest = low, high
        return group

    def decode(
        self, group: Sequence[MadeCodes], between: Callable[[], None] | None
    ) -> list[SegmentAudio | Exception]:
        """Return each segment's answer; an error is that of its own segment alone.

        Args:
            between: called between the pieces of the pass; None takes it in one piece.
        """
        answers = self._attempt(partial(self._answers, group, between), len(group))
        if answers is None:
            return [answer for item in group for answer in self.decode([item], between)]
        return [answers] * len(group) if isinstance(answers, Exception) else answers

    def decode_chunks(self, chunks: Sequence[MadeCodes]) -> None:
        """Decode one chunk of each of several streams; hand on the audio, or what ends a stream."""
        started_at = time.perf_counter()
        decoded = self._attempt(partial(self._decoded_chunks, chunks), len(chunks))
        if decoded is None:
            for chunk in chunks:
                self.decode_chunks([chunk])
        elif isinstance(decoded, Exception):
            resolve(chunks[0].request.future, decoded)
        else:
            for chunk, (wave, codes) in zip(chunks, decoded, strict=True):
                if wave.size:
                    chunk.live.give(wave)
                if chunk.reason is not None:
                    whole = np.concatenate([np.empty(0, np.float32), *chunk.live.waves])
                    answer = self._answer(chunk, codes, whole, started_at)
                    resolve(chunk.request.future, answer)

    def _answers(
        self, group: Sequence[MadeCodes], between: Callable[[], None] | None
    ) -> list[SegmentAudio | Exception]:
        started_at = time.perf_counter()
        codes = [item.codes for item in group]
        self._take_over(group)
        if between is None and not self._is_strict:
            waves = self._decoder.decode(codes, max_batch_frames=self._frames, may_wait=False)
        else:
            waves = self._in_pieces(codes, between)
        on_host = zip(group, self._on_host(waves, group), strict=True)
        return [self._answer(item, codes, wave, started_at) for item, (wave, codes) in on_host]

    def _answer(
        self, item: MadeCodes, codes: CodesArray, wave: AudioArray, started_at: float
    ) -> SegmentAudio:
        """Return a request's answer; `codec_seconds` are those since the pass it shared began."""
        request = item.request
        assert item.reason is not None
        timings = Timings(
            queue_seconds=request.started_at - request.submitted_at,
            prefill_seconds=request.prefilled_at - request.started_at,
            decode_seconds=request.decoded_at - request.prefilled_at,
            codec_seconds=time.perf_counter() - started_at,
        )
        return SegmentAudio(codes, wave, self._rate, item.reason, timings)

    def _on_host(
        self, waves: Sequence[Tensor], items: Sequence[MadeCodes]
    ) -> list[tuple[AudioArray, CodesArray]]:
        """Return each item's samples and, where its request has ended, codes; having waited once.

        Of a stream that goes on nobody asks for the codes, and none are copied.
        """
        wanted = [one.codes if one.reason is not None else one.codes[:, :0] for one in items]
        arrays = self._host.take([*waves, *wanted])
        codes = [array.astype(np.int16) for array in arrays[len(waves) :]]
        return list(zip(arrays[: len(waves)], codes, strict=True))

    def _in_pieces(
        self, codes: Sequence[Tensor], between: Callable[[], None] | None
    ) -> list[Tensor]:
        """Decode segments piece by piece, their samples side by side until all have ended."""
        streams = [CodecStream(self._decoder) for _ in codes]
        waves: list[list[Tensor]] = [[] for _ in codes]
        limit, graphs = (PIECE_FRAMES, None) if self._is_strict else (self._frames, self.graphs)
        for start in range(0, max(matrix.shape[1] for matrix in codes), PIECE_FRAMES):
            if start and between is not None:
                between()
            pieces = [matrix[:, start : start + PIECE_FRAMES] for matrix in codes]
            decoded = decode_streams(
                streams, pieces, max_batch_frames=limit, graphs=graphs, may_wait=False
            )
            for parts, wave in zip(waves, decoded, strict=True):
                parts.append(wave)
        empty = torch.empty(0, device=self._decoder.device)
        return [torch.cat(parts) if parts else empty for parts in waves]

    def _decoded_chunks(self, chunks: Sequence[MadeCodes]) -> list[tuple[AudioArray, CodesArray]]:
        """Return each chunk's samples and, with a stream's last one, all of its codes."""
        self._take_over(chunks)
        streams = [chunk.live.codec or CodecStream(self._decoder) for chunk in chunks]
        for chunk, stream in zip(chunks, streams, strict=True):
            chunk.live.codec = stream
        marks = [stream.mark() for stream in streams]
        codes = [chunk.codes[:, chunk.start :] for chunk in chunks]
        waves = decode_streams(
            streams,
            codes,
            max_batch_frames=self._frames,
            graphs=self.graphs,
            may_wait=False,
        )
        try:
            return self._on_host(waves, chunks)
        except Exception:
            for stream, mark in zip(streams, marks, strict=True):
                stream.rewind(mark)  # what is tried again begins where this did
            raise

    def _take_over(self, items: Sequence[MadeCodes]) -> None:
        """Have the lane wait for codes, and keep them until it has used them."""
        for item in items:
            self._lane.wait_for(item.made)
            self._lane.adopt(item.codes)

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
            self._good_passes += 1
            if self._good_passes >= GROW_AFTER_PASSES and self._frames < self._most:
                self._frames, self._good_passes = min(2 * self._frames, self._most), 0
            return result
        # Here and not above: the error would keep the memory of what failed.
        if ran_out:
            self._frames, self._good_passes = max(self._frames // 2, LEAST_FRAMES), 0
            free_cached_memory(self._decoder.device)
        return None


class CodecThread:
    """Decode finished segments, several in a pass, and chunks of streams before and between them.

    On CUDA the thread has a stream of usual priority, below that of the frames.
    """

    def __init__(
        self,
        decoder: CodecDecoder,
        *,
        pass_frames: int,
        most_waiting: int,
        is_strict: bool,
        num_threads: int,
        on_progress: Callable[[], None],
    ) -> None:
        """Prepare the thread; it begins with `start`.

        Args:
            pass_frames: frames of codes that the decoder may take in one pass.
            most_waiting: frames of finished segments beyond which `is_behind` says so.
            is_strict: a segment's samples depend on nothing else in one bit.
            num_threads: torch's threads for this thread; 0 leaves the process's number.
            on_progress: called after every pass, without a lock.
        """
        self._decoder, self._lane = decoder, DeviceLane(decoder.device, is_urgent=False)
        self._passes = CodecPasses(
            decoder, self._lane, pass_frames=pass_frames, is_strict=is_strict
        )
        self._most_waiting = most_waiting
        self._num_threads, self._on_progress = num_threads, on_progress
        self._changed = threading.Condition()
        self._segments: list[MadeCodes] = []  # complete ones
        self._chunks: list[MadeCodes] = []  # of streams
        self._streams: list[Future[SegmentAudio]] = []  # until they are done
        self._in_pass, self._pauses, self._closed = False, 0, False
        self._thread = threading.Thread(target=self._run, name="engine-codec", daemon=True)

    @property
    def waiting_frames(self) -> int:
        with self._changed:
            return sum(item.num_frames for item in self._segments)

    def record_streams(self, schedule: ChunkSchedule, capture: Capture | None = None) -> None:
        """Record the decoding of streams' chunks as graphs; to be called before `start`.

        Without `capture` it is done on CUDA and left undone elsewhere. Nothing else may use the
        device meanwhile.

        Args:
            schedule: of most streams; chunks of other sizes are cut into these or go eagerly.
        """
        device = self._decoder.device
        if capture is None and device.type != "cuda":
            return
        # Replays keep the priority of this lane: who listens waits for them as for frames.
        with DeviceLane(device, is_urgent=True).entered():
            graphs = StreamGraphs(self._decoder, schedule.distinct_sizes())
            graphs.record(capture or CudaCapture(device))
        self._passes.graphs = graphs
        logger.info("codec graphs: shapes=%d seconds=%.1f", len(graphs.shapes), graphs.seconds)

    def describe(self) -> dict[str, Any]:
        graphs = self._passes.graphs
        return {
            "codec_kernels": uses_kernels(self._decoder),
            "codec_graphs": len(graphs.shapes) if graphs else 0,
            "codec_graph_seconds": graphs.seconds if graphs else 0.0,
        }

    def start(self) -> None:
        self._thread.start()

    def feed(self, made: MadeCodes) -> None:
        """Take a segment whose codes are complete, or a stream's next ones in their order.

        Their request's future gets the answer when the last ones have been decoded.
        """
        with self._changed:
            (self._segments if made.request.live is None else self._chunks).append(made)
            self._changed.notify_all()

    def watch(self, streams: Sequence[Future[SegmentAudio]]) -> None:
        """Leave gaps in long passes for streams that have begun, until their futures are done."""
        with self._changed:
            self._streams += streams

    def is_behind(self, priority: int) -> bool:
        """Return whether too much waits for segments of this class to be begun."""
        with self._changed:
            ahead = (one for one in self._segments if one.request.priority <= priority)
            frames = sum(item.num_frames for item in ahead)
        return frames > self._most_waiting

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep other long work on the device from adding to a pass: streams alone go on."""
        with self._changed:
            self._pauses += 1
            while self._in_pass:
                self._changed.wait()
        try:
            yield
        finally:
            with self._changed:
                self._pauses -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Stop behind the pass that runs; what is unfinished ends with EngineClosedError."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        for item in [*self._segments, *self._chunks]:
            resolve(item.request.future, EngineClosedError(_CLOSED))

    def _run(self) -> None:
        set_own_threads(self._num_threads)
        with self._lane.entered():
            while self._wait_for_work():
                self._serve_streams()
                self._decode_segments()

    def _wait_for_work(self) -> bool:
        with self._changed:
            while not (self._closed or self._chunks or (self._segments and not self._pauses)):
                self._changed.wait()
            return not self._closed

    def _serve_streams(self) -> None:
        while True:
            with self._changed:
                # Those of a stream that was cancelled go, or the thread would never wait again.
                self._chunks = [one for one in self._chunks if not one.request.future.done()]
                oldest = {id(chunk.request): chunk for chunk in reversed(self._chunks)}
                first = list(oldest.values())
                if not first or self._closed:
                    return
                self._chunks = [chunk for chunk in self._chunks if chunk not in first]
            try:
                self._passes.decode_chunks(first)
            except Exception as error:  # these streams' own, whatever it is
                logger.exception("cannot pass on chunks of audio")
                for chunk in first:
                    resolve(chunk.request.future, error)
            self._on_progress()

    def _between_pieces(self) -> None:
        self._serve_streams()
        if self._closed:
            raise EngineClosedError(_CLOSED)

    def _decode_segments(self) -> None:
        with self._changed:
            self._segments = [one for one in self._segments if not one.request.future.done()]
            if self._pauses or not self._segments:
                return
            self._streams = [future for future in self._streams if not future.done()]
            has_streams = bool(self._streams)
            group = self._passes.choose(self._segments, in_pieces=has_streams)
            self._segments = [item for item in self._segments if item not in group]
            self._in_pass = True
        try:
            answers = self._passes.decode(group, self._between_pieces if has_streams else None)
        except Exception as error:  # theirs alone, whatever it is
            logger.exception("a codec pass failed")
            answers = [error] * len(group)
        finally:
            with self._changed:
                self._in_pass = False
                self._changed.notify_all()
        for item, answer in zip(group, answers, strict=True):
            resolve(item.request.future, answer)
        self._on_progress()


def set_own_threads(num_threads: int) -> None:
    """Have operations called by this thread use so many threads; 0 leaves it as it is.

    Torch keeps the number for each thread, and one more that threads begin with: the latter is
    left as it was. To be called before this thread does anything else with torch.
    """
    if not num_threads:
        return
    others = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    restoring = threading.Thread(target=torch.set_num_threads, args=(others,))
    restoring.start()
    restoring.join()
