"""Run the one thread that makes codes: it keeps the slots of the batch filled from a queue."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future

import torch

from synth.contract import SegmentAudio
from synth.engine.admission import Admission
from synth.engine.codec_thread import CodecThread
from synth.engine.deadlines import Deadlines
from synth.engine.device_lane import DeviceLane
from synth.engine.errors import DeadlineExceededError, EngineClosedError
from synth.engine.frame_look import LOOK_EVERY, Look, Looker
from synth.engine.out_of_memory import SlotLimit, free_cached_memory, is_out_of_memory
from synth.engine.request_queue import RequestQueue, SlotRequest
from synth.engine.segment_audio import give
from synth.engine.slot_batch import RunningSlot, SlotBatch
from synth.engine.slot_output import SlotOutput
from synth.engine.work_counter import WorkCounter

logger = logging.getLogger(__name__)

PATIENCE_ROUNDS = 4  # times the slots: later requests that may pass one over


class SlotLoop:
    """Own the slots; every call of the transformers happens on this thread.

    Between two frames it ends requests that were cancelled or are late, starts waiting ones in free
    slots, and hands what was made to the codec's thread.
    """

    def __init__(
        self,
        batch: SlotBatch,
        codec: CodecThread,
        counter: WorkCounter,
        device: torch.device,
    ) -> None:
        """Prepare the thread; it begins with `start`."""
        self.batch, self.limit = batch, SlotLimit(batch.num_slots)
        self._counter, self._device = counter, device
        self._lane = DeviceLane(device, is_urgent=True)
        self._codec, self._output = codec, SlotOutput(batch, codec, self._lane)
        self._looker, self._look_every = Looker(batch.state), LOOK_EVERY[device.type]
        self._unread: Look | None = None
        self._looked_at = 0
        self.frames_made = 0  # of all segments, since the start
        self._queue = RequestQueue(patience=PATIENCE_ROUNDS * batch.num_slots)
        self._admission = Admission(self._queue, batch, codec, self.limit)
        self._deadlines = Deadlines()
        self._starting: list[SlotRequest] = []
        self._posted: list[Callable[[], None]] = []
        self._wake = threading.Condition()
        self._unfinished, self._any_over, self._closed = 0, False, False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def is_busy(self) -> bool:
        """Return whether a request is unfinished or in a slot."""
        return bool(self._unfinished or self.batch.num_running)

    @property
    def num_waiting(self) -> int:
        """Return how many requests wait for a slot."""
        with self._wake:
            return len(self._queue)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, request: SlotRequest) -> Future[SegmentAudio]:
        """Queue a request; its future can be cancelled at any time until it has its result.

        Raises:
            EngineClosedError: the loop is closed.
        """
        with self._wake:
            if self._closed:
                raise EngineClosedError(
                    "The engine is closed; another worker can render this segment."
                )
            self._queue.push(request)
            self._deadlines.push(request)
            self._unfinished += 1
            self._wake.notify()
        request.future.add_done_callback(self._note_done)
        return request.future

    def post(self, function: Callable[[], None]) -> None:
        """Have a function run on this thread between two frames; nobody waits for it."""
        with self._wake:
            self._posted.append(function)
            self._wake.notify()

    def wake(self) -> None:
        """Look again whether there is something to do."""
        with self._wake:
            self._wake.notify()

    def close(self) -> None:
        """Stop the thread; what is unfinished here ends with EngineClosedError."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        with self._wake:
            waiting = self._queue.drain()
        for request in [*(slot.request for slot in self.batch.running), *waiting]:
            give(
                request.future,
                EngineClosedError("The engine was closed before this segment was rendered."),
            )

    def _note_done(self, future: Future[SegmentAudio]) -> None:
        with self._wake:
            self._unfinished -= 1
            if future.cancelled() or future.exception() is not None:
                self._any_over = True
                self._wake.notify()

    def _run(self) -> None:
        with self._lane.entered():
            while self._wait_for_work():
                ran_out = False
                try:
                    self._run_posted()
                    self._end_over()
                    self._start_some()
                    self._advance()
                except Exception as error:
                    ran_out = is_out_of_memory(error)
                    if not ran_out:
                        logger.exception("engine step failed")
                        self._fail_all(error)
                if ran_out:  # here, where the error keeps no memory any more
                    self._step_down()

    def _wait_for_work(self) -> bool:
        """Block until there is something to do; False when the loop shall end."""
        with self._wake:
            while not (self._closed or self._has_work()):
                self._wake.wait(self._deadlines.seconds_left())
            return not self._closed

    def _has_work(self) -> bool:
        return bool(
            self.batch.num_running
            or self._posted
            or self._any_over
            or self._admission.is_open
            or self._deadlines.seconds_left() == 0
        )

    def _run_posted(self) -> None:
        with self._wake:
            posted, self._posted = self._posted, []
        for function in posted:
            function()

    def _end_over(self) -> None:
        """Free the slots and places of requests that were cancelled or are too late."""
        with self._wake:
            late = self._deadlines.pop_passed()
        in_slots = {id(slot.request) for slot in self.batch.running} if late else set()
        for request in late:
            where = (
                "while the segment was rendered"
                if id(request) in in_slots
                else "while the segment waited"
            )
            give(
                request.future,
                DeadlineExceededError(seconds=request.deadline_seconds, where=where),
            )
        if not self._any_over:
            return
        with self._wake:
            self._any_over = False
            self._queue.drop_done()
        for running in self.batch.running:
            if running.request.future.done():
                self.batch.release(running)

    def _start_some(self) -> None:
        """Give free slots to requests; when nothing waits, keep those in use at the front."""
        with self._wake:
            if not len(self._queue):
                self.batch.compact()
                return
            self._starting = self._admission.take()
        if not self._starting:
            return
        for request, error in self.batch.start(self._starting):
            give(request.future, error)
        self._counter.note()
        streams = [request.future for request in self._starting if request.live is not None]
        self._starting = []
        if streams:
            self._codec.watch(streams)
            self._look(self.batch.running, in_haste=True)  # the first frame came with the prompt

    def _advance(self) -> None:
        """Compute one frame, and look at the slots when it is time."""
        running = self.batch.running
        if not running:
            self._unread = None
            return
        can_go_on = any(slot.last_frame > self.batch.frames for slot in running)
        if can_go_on:
            self.batch.step()
            self.limit.note_frame()
            self.frames_made += len(running)
            self._counter.note()
        in_haste = not can_go_on or any(_is_unheard(slot) for slot in running)
        if in_haste or self.batch.frames - self._looked_at >= self._look_every:
            self._look(running, in_haste=in_haste)

    def _look(self, running: list[RunningSlot], *, in_haste: bool) -> None:
        """Begin a look and read the one before, or both where there is nothing to wait for."""
        look, before = self._looker.begin(running), self._unread
        self._unread, self._looked_at = look, self.batch.frames
        if before is not None:
            self._output.take(before.read())
        if in_haste or not self._looker.is_async:
            self._unread = None
            self._output.take(look.read())

    def _step_down(self) -> None:
        """Use fewer slots: what they held waits again, and begins anew with the same seed.

        Requests that were being started wait until others have left; the slots in use are as they
        were. After a frame nothing is sure, so all slots begin anew. One that was alone ends.
        """
        running = sorted(self.batch.running, key=_start_time)
        logger.warning("memory ran out: running=%d starting=%d", len(running), len(self._starting))
        if self._starting:
            affected, self._starting = self._starting, []
        else:
            affected, running = [slot.request for slot in running], []
            self._release_all()
        self.batch.prefixes.clear()
        free_cached_memory(self._device)
        if not self.limit.step_down(len(affected), still_used=len(running)):
            give(affected[0].future, MemoryError())
            return
        for request in affected:
            request.restarts += 1
        with self._wake:
            self._queue.push_front(affected)

    def _fail_all(self, error: Exception) -> None:
        """End what is in slots with an error that nobody foresaw."""
        for request in [*(slot.request for slot in self.batch.running), *self._starting]:
            give(request.future, error)
        self._release_all()

    def _release_all(self) -> None:
        for running in self.batch.running:
            self.batch.release(running)
        self._starting, self._unread = [], None


def _is_unheard(slot: RunningSlot) -> bool:
    """Return whether a stream waits for its first sound."""
    live = slot.request.live
    return live is not None and not live.num_handed


def _start_time(slot: RunningSlot) -> float:
    return slot.started_at
