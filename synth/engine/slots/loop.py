"""Run the one thread that makes codes: it admits requests, steps their slots and retires them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import torch

from synth.contract import SegmentAudio
from synth.engine.device import DeviceLane, free_cached_memory, is_out_of_memory
from synth.engine.errors import (
    DeadlineExceededError,
    DeviceOutOfMemoryError,
    EngineClosedError,
    NonFiniteLogitsError,
)
from synth.engine.model.decode_state import ENDED, FAILED, FINISH_REASONS, RUNNING
from synth.engine.model.prefill import MAX_PACK_POSITIONS
from synth.engine.slots.batch import ReadStatus, SlotBatch, StatusReader
from synth.engine.slots.codec_thread import CodecThread
from synth.engine.slots.requests import (
    Deadlines,
    LiveAudio,
    MadeCodes,
    RequestQueue,
    SlotLimit,
    SlotRequest,
    resolve,
)

logger = logging.getLogger(__name__)

PATIENCE_ROUNDS = 4  # times the slots: later requests that may pass one over
LIVE_PACK_EVERY = 4  # frames between two packs of prompts while streams are listened to
# Where a frame of many slots takes many times as long as one of few, as on a CPU, more urgent
# requests are advanced alone: for so many frames, and as many again as all have had since.
MOST_FRAMES_ALONE = 100
# Frames of a stream that runs alone before others join it, its first three chunks: prompts and
# frames of ten take many times as long, and this much sound lasts until theirs are there.
OPENING_FRAMES = 7


class SlotLoop:
    """Own the slots; every call of the transformers happens on this thread.

    Between two frames it ends requests that were cancelled or are late, starts waiting ones in free
    slots, and hands what was made to the codec's thread.
    """

    def __init__(
        self,
        batch: SlotBatch,
        codec: CodecThread,
        device: torch.device,
        note_work: Callable[[], None],
    ) -> None:
        """Prepare the thread; `note_work` is called after every frame and every pass of prompts."""
        self.batch, self.limit = batch, SlotLimit(batch.num_slots)
        self._note_work, self._device = note_work, device
        self._lane = DeviceLane(device, is_urgent=True)
        self._codec = codec
        self._status = StatusReader(batch.state)
        self._unread: ReadStatus | None = None
        self.frames_made = 0  # of all segments, since the start
        self._frames_alone = MOST_FRAMES_ALONE if batch.urgent_first else 0  # left
        self._queue = RequestQueue(patience=PATIENCE_ROUNDS * batch.num_slots)
        self._deadlines = Deadlines()
        self._last_pack, self._last_voice = -LIVE_PACK_EVERY, ""
        self._starting: list[SlotRequest] = []
        self._posted: list[Callable[[], None]] = []
        self._wake = threading.Condition()
        self._unfinished, self._any_done, self._closed = 0, False, False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def is_busy(self) -> bool:
        """Return whether a request is unfinished or in a slot."""
        return bool(self._unfinished or self.batch.num_running)

    @property
    def num_waiting(self) -> int:
        with self._wake:
            return len(self._queue)

    def start(self) -> None:
        self._thread.start()

    def submit(self, request: SlotRequest) -> Future[SegmentAudio]:
        """Queue a request; its future can be cancelled at any time until it has its result.

        Raises:
            EngineClosedError: the loop is closed.
        """
        with self._wake:
            if self._closed:
                message = "The engine is closed; another worker can render this segment."
                raise EngineClosedError(message)
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
        with self._wake:
            self._wake.notify()

    def close(self) -> None:
        """Stop the thread; what is unfinished here ends with EngineClosedError."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        message = "The engine was closed before this segment was rendered."
        with self._wake:
            waiting = self._queue.drain()
        for request in [*self.batch.running, *waiting]:
            resolve(request.future, EngineClosedError(message))

    def _note_done(self, future: Future[SegmentAudio]) -> None:
        with self._wake:
            self._unfinished -= 1
            if future.cancelled() or future.exception() is not None:
                self._any_done = True
                self._wake.notify()

    def _run(self) -> None:
        with self._lane.entered():
            while self._wait_for_work():
                ran_out = False
                try:
                    with self._wake:
                        posted, self._posted = self._posted, []
                    for function in posted:
                        function()
                    self._end_done()
                    self._start_some()
                    self._advance()
                except Exception as error:
                    ran_out = is_out_of_memory(error)
                    if not ran_out:
                        logger.exception("engine step failed")
                        self._fail_all(error)
                if ran_out:  # here, where the error keeps no memory any more
                    self._use_fewer_slots()

    def _wait_for_work(self) -> bool:
        with self._wake:
            while not (
                self._closed
                or self.batch.num_running
                or self._posted
                or self._any_done
                or self._may_start()
                or self._deadlines.seconds_left() == 0
            ):
                self._wake.wait(self._deadlines.seconds_left())
            return not self._closed

    def _end_done(self) -> None:
        """Free the slots and places of requests that were cancelled or are too late."""
        with self._wake:
            late = self._deadlines.pop_passed()
        for request in late:
            where = "waited" if request.slot is None else "was rendered"
            error = DeadlineExceededError(
                seconds=request.deadline_seconds or 0.0, where=f"while the segment {where}"
            )
            resolve(request.future, error)
        if not self._any_done:
            return
        with self._wake:
            self._any_done = False
            self._queue.drop_done()
        for request in self.batch.running:
            if request.future.done():
                self.batch.release(request)

    def _start_some(self) -> None:
        """Give free slots to requests; when nothing waits, keep those in use at the front."""
        with self._wake:
            if not len(self._queue):
                self.batch.compact()
                return
            self._starting = self._take_requests()
        if not self._starting:
            return
        for request, error in self.batch.start(self._starting):
            resolve(request.future, error)
        self._note_work()
        streams = [request.future for request in self._starting if request.live is not None]
        self._starting = []
        if streams:
            self._codec.watch(streams)

    def _may_start(self) -> bool:
        """Return whether the request that goes next may have a slot now; holds the lock."""
        priority = self._queue.next_priority()
        if priority is None or self.batch.num_running >= self.limit.now:
            return False
        if self._codec.is_behind(priority) or self._is_opening():
            return False
        running = self.batch.running
        if self._slots_to_compute(running) < self.batch.bucket and priority > _urgent(running):
            return False
        # A less urgent prompt would widen the gaps of streams too much.
        return self.batch.frames - self._last_pack >= LIVE_PACK_EVERY or all(
            request.priority >= priority for request in running if request.live is not None
        )

    def _slots_to_compute(self, running: Sequence[SlotRequest]) -> int:
        """Return how many slots the next frame computes: few where urgent requests go on alone.

        They do not where what is less urgent is heard, or has waited long enough.
        """
        urgent = _urgent(running)
        others = [one for one in running if one.priority > urgent]
        if not self._frames_alone or not others or any(one.live is not None for one in others):
            return self.batch.bucket
        return self.batch.bucket_with([one for one in running if one.priority == urgent][-1])

    def _is_opening(self) -> bool:
        """Return whether a stream runs alone that has only just begun."""
        running = self.batch.running
        live = running[0].live if len(running) == 1 else None
        return live is not None and live.num_handed < OPENING_FRAMES

    def _take_requests(self) -> list[SlotRequest]:
        """Take the requests to start now: no more than one pass of prompts, and none in vain.

        A prefix that is not kept counts with its positions, once. Holds the lock.
        """
        running = self.batch.running
        voices = {request.voice for request in running} | {self._last_voice}
        taken: list[SlotRequest] = []
        known: set[str] = set()
        positions = 0
        while len(running) + len(taken) < self.limit.now and self._may_start():
            if taken and self._frames_alone and self._queue.next_priority() != taken[0].priority:
                break  # the more urgent ones go on alone
            request = self._queue.pop(voices)
            if request is None:
                break
            positions += request.own.shape[1]
            if request.voice not in known and request.voice not in self.batch.prefixes:
                positions += request.prefix.shape[1]
            if taken and positions > MAX_PACK_POSITIONS:
                self._queue.push_front([request])
                break
            known.add(request.voice)
            voices.add(request.voice)
            taken.append(request)
            self._last_voice = request.voice
            if request.live is not None and not running:
                break  # its first sound comes sooner alone
        if taken:
            self._last_pack = self.batch.frames
        return taken

    def _advance(self) -> None:
        running = self.batch.running
        if not running:
            self._unread = None
            return
        can_go_on = any(request.last_frame > self.batch.frames for request in running)
        if can_go_on:
            bucket = self._slots_to_compute(running)
            self._note_frame(is_for_all=bucket == self.batch.bucket)
            self.frames_made += self.batch.step(bucket)
            self.limit.note_frame()
            self._note_work()
        # A stream that waits for its first sound waits for nothing else.
        at_once = not can_go_on or any(
            request.live is not None and not request.live.num_handed for request in running
        )
        self._read_status(running, at_once=at_once)

    def _note_frame(self, *, is_for_all: bool) -> None:
        if self.batch.urgent_first:
            change = 1 if is_for_all else -1
            self._frames_alone = min(self._frames_alone + change, MOST_FRAMES_ALONE)

    def _read_status(self, running: list[SlotRequest], *, at_once: bool) -> None:
        """Begin a copy and read the one before, or both where there is nothing to wait for.

        With one left unread the host is a frame ahead of the device and no more: a prompt that
        comes now is behind that frame alone.
        """
        copy, before = self._status.begin(running), self._unread
        self._unread = copy
        if before is not None:
            self._follow(before)
        if at_once or not self._status.is_async:
            self._unread = None
            self._follow(copy)

    def _follow(self, read: ReadStatus) -> None:
        """Give the codec what the slots have made, and free those whose request has ended."""
        for request, status, frames in read():
            if status != RUNNING:
                self._retire(request, status, frames)
            elif request.live is not None:
                self._send_chunks(request, request.live, frames)

    def _send_chunks(self, request: SlotRequest, live: LiveAudio, frames: int) -> None:
        while size := live.next_chunk(frames):
            end = live.num_handed + size
            if request.restarts and not live.agrees_with(self.batch.codes(request, 0, end)):
                resolve(request.future, _stream_changed())
                return
            codes = self.batch.codes(request, live.num_handed, end)
            live.note_handed(codes)
            self._codec.feed(MadeCodes(request, codes, self._lane.mark()))

    def _retire(self, request: SlotRequest, status: int, frames: int) -> None:
        """Free a slot; its codes go to the codec, or its failure to who asked."""
        request.failed, live = status == FAILED, request.live
        reason = FINISH_REASONS.get(status)
        if reason is None:
            self.batch.release(request)
            text = f"The model's logits at frame {frames} are not finite."
            resolve(request.future, NonFiniteLogitsError(text))
            return
        codes = self.batch.codes(request, 0, frames - (status == ENDED))
        self.batch.release(request)
        request.decoded_at = time.perf_counter()
        if live is not None and request.restarts and not live.agrees_with(codes):
            resolve(request.future, _stream_changed())
            return
        start = 0 if live is None else live.num_handed
        self._codec.feed(MadeCodes(request, codes, self._lane.mark(), reason, start))

    def _use_fewer_slots(self) -> None:
        """Use fewer slots: what they held waits again, and begins anew with the same seed.

        Requests that were being started wait until others have left; the slots in use are as they
        were. After a frame nothing is sure, so all slots begin anew. One that was alone ends.
        """
        running = sorted(self.batch.running, key=lambda request: request.started_at)
        logger.warning("memory ran out: running=%d starting=%d", len(running), len(self._starting))
        if self._starting:
            affected, self._starting = self._starting, []
        else:
            affected, running = running, []
            self._release_all()
        self.batch.prefixes.clear()
        free_cached_memory(self._device)
        if not self.limit.reduce(len(affected), still_used=len(running)):
            resolve(affected[0].future, MemoryError())
            return
        for request in affected:
            request.restarts += 1
        with self._wake:
            self._queue.push_front(affected)

    def _fail_all(self, error: Exception) -> None:
        for request in [*self.batch.running, *self._starting]:
            resolve(request.future, error)
        self._release_all()

    def _release_all(self) -> None:
        for request in self.batch.running:
            self.batch.release(request)
        self._starting, self._unread = [], None


def _urgent(running: Sequence[SlotRequest]) -> int:
    return min((one.priority for one in running), default=0)


def _stream_changed() -> DeviceOutOfMemoryError:
    return DeviceOutOfMemoryError(
        "Memory ran out while somebody listened to this stream. The same audio cannot be "
        "continued, so request it again."
    )
