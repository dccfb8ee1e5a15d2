"""Choose which waiting requests get slots at this frame boundary."""

from __future__ import annotations

from synth.engine.codec_thread import CodecThread
from synth.engine.out_of_memory import SlotLimit
from synth.engine.prefill import MAX_PACK_POSITIONS
from synth.engine.request_queue import RequestQueue, SlotRequest
from synth.engine.slot_batch import SlotBatch

LIVE_PACK_EVERY = 4  # frames between two packs of prompts while streams are listened to


class Admission:
    """Decide on starts; the thread of the slots calls it, holding the queue's lock."""

    def __init__(
        self, queue: RequestQueue, batch: SlotBatch, codec: CodecThread, limit: SlotLimit
    ) -> None:
        self._queue, self._batch, self._codec, self._limit = queue, batch, codec, limit
        self._last_pack = -LIVE_PACK_EVERY
        self._last_voice = ""

    @property
    def is_open(self) -> bool:
        """Return whether the request that goes next may have a slot now."""
        priority = self._queue.next_priority()
        return (
            priority is not None
            and self._batch.num_running < self._limit.now
            and not self._codec.is_behind(priority)
            and not self._would_delay_streams(priority)
        )

    def take(self) -> list[SlotRequest]:
        """Take the requests to start now: no more than one pass of prompts, and none in vain.

        A prefix that is not kept counts with its positions, once.
        """
        running = self._batch.running
        voices = {slot.request.voice for slot in running} | {self._last_voice}
        taken: list[SlotRequest] = []
        known: set[str] = set()
        positions = 0
        while len(running) + len(taken) < self._limit.now and self.is_open:
            request = self._queue.pop(voices)
            if request is None:
                break
            positions += request.own.shape[1]
            if request.voice not in known and request.voice not in self._batch.prefixes:
                positions += request.prefix.shape[1]
            if taken and positions > MAX_PACK_POSITIONS:
                self._queue.push_front([request])
                break
            known.add(request.voice)
            voices.add(request.voice)
            taken.append(request)
            self._last_voice = request.voice
        if taken:
            self._last_pack = self._batch.frames
        return taken

    def _would_delay_streams(self, priority: int) -> bool:
        """Return whether a less urgent prompt now would widen the gaps of streams too much."""
        if self._batch.frames - self._last_pack >= LIVE_PACK_EVERY:
            return False
        live = [slot.request for slot in self._batch.running if slot.request.live is not None]
        return any(request.priority < priority for request in live)
