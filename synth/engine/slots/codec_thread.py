"""Turn codes into audio on an own thread, beside the one that makes codes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import torch

from synth.contract import SegmentAudio
from synth.engine.codec import ChunkSchedule, CodecDecoder
from synth.engine.codec.capture import Capture, CudaCapture
from synth.engine.codec.fusing import uses_kernels
from synth.engine.codec.streams.graphs import StreamGraphs
from synth.engine.device_lane import DeviceLane
from synth.engine.errors import EngineClosedError
from synth.engine.slots.codec_passes import CodecPasses
from synth.engine.slots.segment_audio import FinishedCodes, LiveChunk, give

logger = logging.getLogger(__name__)

_CLOSED = "The engine was closed before this request was done."


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
        self._segments: list[FinishedCodes] = []
        self._chunks: list[LiveChunk] = []
        self._streams: list[Future[SegmentAudio]] = []  # until they are done
        self._in_pass, self._pauses, self._closed = False, 0, False
        self._thread = threading.Thread(target=self._run, name="engine-codec", daemon=True)

    @property
    def waiting_frames(self) -> int:
        """Return the frames of finished segments that wait."""
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
        with self._lane.entered():
            graphs = StreamGraphs(self._decoder, schedule.distinct_sizes())
            graphs.record(capture or CudaCapture(device))
        self._passes.graphs = graphs
        logger.info("codec graphs: shapes=%d seconds=%.1f", len(graphs.shapes), graphs.seconds)

    def describe(self) -> dict[str, Any]:
        """Return how the decoder is run, for pages and logs."""
        graphs = self._passes.graphs
        return {
            "codec_kernels": uses_kernels(self._decoder),
            "codec_graphs": len(graphs.shapes) if graphs else 0,
            "codec_graph_seconds": graphs.seconds if graphs else 0.0,
        }

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def finish(self, finished: FinishedCodes) -> None:
        """Take a segment whose codes are complete; its future gets the answer."""
        with self._changed:
            self._segments.append(finished)
            self._changed.notify_all()

    def watch(self, streams: Sequence[Future[SegmentAudio]]) -> None:
        """Leave gaps in long passes for streams that have begun, until their futures are done."""
        with self._changed:
            self._streams += streams

    def feed(self, chunk: LiveChunk) -> None:
        """Take a stream's next chunk; the chunks of a stream are decoded in the order they came."""
        with self._changed:
            self._chunks.append(chunk)
            self._changed.notify_all()

    def is_behind(self, priority: int) -> bool:
        """Return whether too much waits for segments of this class to be begun."""
        with self._changed:
            frames = sum(item.num_frames for item in self._segments if item.priority <= priority)
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
        unfinished = [item.future for item in self._segments]
        unfinished += [chunk.future for chunk in self._chunks]
        for future in unfinished:
            give(future, EngineClosedError(_CLOSED))

    def _run(self) -> None:
        set_own_threads(self._num_threads)
        with self._lane.entered():
            while self._wait_for_work():
                self._serve_streams()
                self._decode_segments()

    def _wait_for_work(self) -> bool:
        """Block until there is something to do; False when the thread shall end."""
        with self._changed:
            while not (self._closed or self._chunks or (self._segments and not self._pauses)):
                self._changed.wait()
            return not self._closed

    def _serve_streams(self) -> None:
        """Decode the chunks that wait, one of each stream in a pass."""
        while True:
            with self._changed:
                chunks = [chunk for chunk in self._chunks if not chunk.future.done()]
                first = list({id(chunk.live): chunk for chunk in reversed(chunks)}.values())
                if not first or self._closed:
                    return
                self._chunks = [chunk for chunk in chunks if chunk not in first]
            try:
                self._passes.decode_chunks(first)
            except Exception as error:  # these streams' own, whatever it is
                logger.exception("cannot pass on chunks of audio")
                for chunk in first:
                    give(chunk.future, error)
            self._on_progress()

    def _between_pieces(self) -> None:
        self._serve_streams()
        if self._closed:
            raise EngineClosedError(_CLOSED)

    def _decode_segments(self) -> None:
        """Decode one pass of finished segments, with gaps while there are streams."""
        with self._changed:
            self._segments = [item for item in self._segments if not item.future.done()]
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
            give(item.future, answer)
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
