"""Hold requests from their arrival to their answer: queued, with their live audio, resolved."""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from dataclasses import dataclass, field
from queue import SimpleQueue

import torch
from torch import Tensor

from synth.contract import AudioArray, FinishReason, Sampling, SegmentAudio
from synth.engine.codec.streams import ChunkSchedule, CodecStream
from synth.engine.device import is_out_of_memory
from synth.engine.errors import DeviceOutOfMemoryError, RenderCancelledError

GROW_AFTER_FRAMES = 256  # frames without trouble after which more slots are tried, about 12 s
FRAMES_PER_TOKEN = 6  # of calm speech, about; only the order of the queue depends on it
logger = logging.getLogger(__name__)


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
        self._handed.append(codes)
        self.num_handed += codes.shape[1]
        self._wanted = next(self._sizes)

    def agrees_with(self, codes: Tensor) -> bool:
        """Return whether codes [K, T], made anew, begin with those that were handed on."""
        if not self._handed:
            return True
        handed = torch.cat(self._handed, dim=1)
        return torch.equal(handed, codes[:, : handed.shape[1]])

    def give(self, wave: AudioArray) -> None:
        self.waves.append(wave)
        self._on_audio(wave)


class AudioStream(Iterator[AudioArray]):
    """Iterate over a segment's audio while it is being made: float32 [N] at `sample_rate`.

    Iterating raises the EngineError that ends the request; frames just made may not be heard then.
    A stream that is closed, or dropped before its end, gives its slot free at the next frame.
    """

    def __init__(self, live: LiveAudio, future: Future[SegmentAudio], sample_rate: int) -> None:
        self.sample_rate = sample_rate
        pieces = self._pieces = live.pieces
        self._future = future
        self._is_over = False
        future.add_done_callback(lambda _: pieces.put(None))  # it keeps no stream alive

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

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._future.cancel()


@dataclass(eq=False)
class SlotRequest:
    """Ask for the speech of one prompt; it is over as soon as its future is done.

    `prefix` int64 [1 + K, P] is the voices' part of the prompt and `voice` names it, `own` int64
    [1 + K, S] is the text's. `live` is where audio goes while it is being made. The times are those
    of the host, which on CUDA may be a few frames ahead of the device.
    """

    prefix: Tensor
    own: Tensor
    voice: str
    sampling: Sampling
    priority: int = 0
    deadline_seconds: float | None = None  # from when it was submitted
    live: LiveAudio | None = None
    future: Future[SegmentAudio] = field(default_factory=Future)
    submitted_at: float = field(default_factory=time.perf_counter)
    restarts: int = 0  # times it left its slot unfinished because memory ran out
    turn: int = 0  # removals from its class after which nothing later may go first
    slot: int | None = None  # None before it has one, and when it has left it
    last_frame: int = 0  # the batch's frame count at which it has reached its limit
    failed: bool | None = None  # once its end was seen: whether its numbers were not finite
    started_at: float = 0.0
    prefilled_at: float = 0.0
    decoded_at: float = 0.0

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + (self.deadline_seconds or 0.0)

    @property
    def positions(self) -> int:
        return self.prefix.shape[1] + self.own.shape[1]


class RequestQueue:
    """Hold waiting requests; who uses it from several threads holds a lock meanwhile.

    A lower `priority` goes first without exception. Within a class a voice that is at work already
    goes first, then the longest request, so that the last ones to end are short; but a request is
    passed over by at most `patience` later ones, and one whose audio is heard meanwhile by none
    once it is the oldest.
    """

    def __init__(self, *, patience: int) -> None:
        self._patience = patience
        self._classes: dict[int, _Class] = {}

    def __len__(self) -> int:
        return sum(len(one.waiting) for one in self._classes.values())

    def push(self, request: SlotRequest) -> None:
        one = self._classes.setdefault(request.priority, _Class())
        request.turn = one.pushed + (self._patience if request.live is None else 0)
        one.pushed += 1
        one.waiting.append(request)

    def push_front(self, requests: Sequence[SlotRequest]) -> None:
        """Put requests that were taken back at the head of their classes, in this order."""
        for request in reversed(requests):
            one = self._classes.setdefault(request.priority, _Class())
            request.turn = 0
            if one.removed:
                one.removed -= 1  # as if it had never been taken
            else:
                one.pushed += 1
            one.waiting.insert(0, request)

    def next_priority(self) -> int | None:
        """Return the class of the request that goes next; None when nothing waits."""
        self.drop_done()
        return min(self._classes, default=None)

    def pop(self, voices: Collection[str] = ()) -> SlotRequest | None:
        """Take the request that goes next, when `voices` are at work; None when nothing waits."""
        while self._classes:
            priority = min(self._classes)
            request = self._classes[priority].pop(voices)
            if not self._classes[priority].waiting:
                del self._classes[priority]
            if not request.future.done():
                return request
        return None

    def drop_done(self) -> None:
        """Forget the requests that are over: cancelled, or past their deadline."""
        for priority, one in list(self._classes.items()):
            left = [request for request in one.waiting if not request.future.done()]
            one.removed += len(one.waiting) - len(left)
            one.waiting = left
            if not left:
                del self._classes[priority]

    def drain(self) -> list[SlotRequest]:
        waiting = [request for one in self._classes.values() for request in one.waiting]
        self._classes.clear()
        return waiting


@dataclass(eq=False)
class _Class:
    """Hold the requests of one priority in the order they came, and what has passed through."""

    waiting: list[SlotRequest] = field(default_factory=list)
    pushed: int = 0
    removed: int = 0

    def pop(self, voices: Collection[str]) -> SlotRequest:
        index = 0
        # All that came before the first one are gone: what was removed besides passed it over.
        if self.removed < self.waiting[0].turn:
            index = max(range(len(self.waiting)), key=lambda i: self._rank(i, voices))
        self.removed += 1
        return self.waiting.pop(index)

    def _rank(self, index: int, voices: Collection[str]) -> tuple[bool, int]:
        """Say whether a request's voice is at work, and about how many frames it takes."""
        request = self.waiting[index]
        frames = min(request.sampling.max_frames, FRAMES_PER_TOKEN * request.own.shape[1])
        return request.voice in voices, frames


class Deadlines:
    """Hold requests by their deadline; who uses it from several threads holds a lock meanwhile."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, SlotRequest]] = []  # the number only tells equal ones

    def push(self, request: SlotRequest) -> None:
        """Watch a request; one without a deadline needs no watching."""
        if request.deadline_seconds is not None:
            heapq.heappush(self._heap, (request.deadline, id(request), request))

    def seconds_left(self) -> float | None:
        """Return the seconds to the next deadline, 0 when it has passed; None without one."""
        while self._heap and self._heap[0][2].future.done():
            heapq.heappop(self._heap)
        return max(self._heap[0][0] - time.monotonic(), 0.0) if self._heap else None

    def pop_passed(self) -> list[SlotRequest]:
        """Return the unfinished requests whose deadline has passed, and watch them no longer."""
        passed = []
        while self.seconds_left() == 0:
            passed.append(heapq.heappop(self._heap)[2])
        return passed


class SlotLimit:
    """Hold how many slots may be in use: fewer after memory ran out, more again little by little.

    Memory that ran out once may have been another process's doing, so every size is tried again.
    """

    def __init__(self, most: int) -> None:
        self.most = self.now = most
        self._frames = 0

    def reduce(self, failed: int, *, still_used: int = 0) -> bool:
        """Allow half of the slots that failed, or those still in use and no more.

        Returns:
            False where a single slot failed with no other in use: nothing smaller can be tried.
        """
        self._frames = 0
        self.now = still_used or max(failed // 2, 1)
        return still_used > 0 or failed > 1

    def note_frame(self) -> None:
        if self.now == self.most:
            return
        self._frames += 1
        if self._frames >= GROW_AFTER_FRAMES:
            self._frames = 0
            self.now = min(self.now + max(self.now // 4, 1), self.most)


@dataclass(frozen=True, slots=True, eq=False)
class MadeCodes:
    """Hold codes that a slot has made, integers [K, n]: a segment's, or a stream's newest.

    `made` comes when the device has written them. `reason` is why the request ended: the codes are
    then all of its codes, of which those from `start` on are to be decoded. None: more will follow.
    """

    request: SlotRequest
    codes: Tensor
    made: torch.cuda.Event | None
    reason: FinishReason | None = None
    start: int = 0

    @property
    def num_frames(self) -> int:
        return self.codes.shape[1]

    @property
    def live(self) -> LiveAudio:
        """Return where a stream's audio goes."""
        assert self.request.live is not None
        return self.request.live


def resolve(future: Future[SegmentAudio], outcome: SegmentAudio | Exception) -> None:
    """Set a future's outcome unless it has one already, as when it was cancelled."""
    if isinstance(outcome, Exception) and is_out_of_memory(outcome):
        outcome = DeviceOutOfMemoryError(
            "The device has no memory for this segment, even alone. Lower TTS_ENGINE_SLOTS "
            "or TTS_ENGINE_MAX_POSITIONS, or use a device with more memory."
        )
    try:
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
    except InvalidStateError:
        logger.debug("a result came after its request had ended")
