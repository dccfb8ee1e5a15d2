"""Take what the slots have made to the codec, and free those whose request has ended."""

from __future__ import annotations

import time
from collections.abc import Sequence

from torch import Tensor

from synth.engine.codec_thread import CodecThread
from synth.engine.decode_state import ENDED, FAILED, FINISH_REASONS, RUNNING
from synth.engine.device_lane import DeviceLane
from synth.engine.errors import DeviceOutOfMemoryError, NonFiniteLogitsError
from synth.engine.frame_look import Progress
from synth.engine.segment_audio import FinishedCodes, LiveChunk, give
from synth.engine.slot_batch import RunningSlot, SlotBatch


class SlotOutput:
    """Hand codes on as looks show them; the thread of the slots calls it."""

    def __init__(self, batch: SlotBatch, codec: CodecThread, lane: DeviceLane) -> None:
        self._batch, self._codec, self._lane = batch, codec, lane

    def take(self, found: Sequence[Progress]) -> None:
        """Deal with each request's progress."""
        for progress in found:
            if progress.status != RUNNING:
                self._end(progress)
            elif progress.running.request.live is not None:
                self._hand_on(progress.running, progress.frames)

    def _hand_on(self, running: RunningSlot, frames: int) -> None:
        """Give the codec the chunks of a stream that are complete."""
        live, future = running.request.live, running.request.future
        assert live is not None
        while size := live.next_chunk(frames):
            end = live.num_handed + size
            if running.request.restarts and not live.agrees_with(
                self._batch.codes(running, 0, end)
            ):
                give(future, _changed())
                return
            codes = self._batch.codes(running, live.num_handed, end)
            live.note_handed(codes)
            self._codec.feed(LiveChunk(live, future, codes, self._lane.mark()))

    def _end(self, progress: Progress) -> None:
        """Free a slot; its codes go to the codec, or its failure to who asked."""
        running, request = progress.running, progress.running.request
        running.failed = progress.status == FAILED
        reason = FINISH_REASONS.get(progress.status)
        if reason is None:
            self._batch.release(running)
            text = f"The model's logits at frame {progress.frames} are not finite."
            give(request.future, NonFiniteLogitsError(text))
            return
        spoken = progress.frames - (progress.status == ENDED)
        codes = self._batch.codes(running, 0, spoken)
        self._batch.release(running)
        finished = FinishedCodes(
            codes=codes,
            made=self._lane.mark(),
            reason=reason,
            future=request.future,
            priority=request.priority,
            queue_seconds=running.started_at - request.submitted_at,
            prefill_seconds=running.prefilled_at - running.started_at,
            decode_seconds=time.perf_counter() - running.prefilled_at,
        )
        if request.live is None:
            self._codec.finish(finished)
        else:
            self._end_stream(running, finished, codes)

    def _end_stream(self, running: RunningSlot, finished: FinishedCodes, codes: Tensor) -> None:
        live = running.request.live
        assert live is not None
        if running.request.restarts and not live.agrees_with(codes):
            give(finished.future, _changed())
            return
        rest = codes[:, live.num_handed :]
        live.note_handed(rest)
        self._codec.feed(LiveChunk(live, finished.future, rest, finished.made, finished))


def _changed() -> DeviceOutOfMemoryError:
    return DeviceOutOfMemoryError(
        "Memory ran out while somebody listened to this stream. The same audio cannot be "
        "continued, so request it again."
    )
