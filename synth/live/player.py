"""Send one job's audio to one client while it is rendered, without a thread for it."""

from __future__ import annotations

import asyncio
import enum
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from synth.live.answer import BYTES_PER_SAMPLE, send_bytes, send_start
from synth.live.place import Silence, Sound
from synth.live.reading import read_object
from synth.live.watcher import Listener, LiveWatcher
from ttsweb.http.asgi_ask import Receive, Send, disconnected

SILENT_SECONDS = 600.0  # without any audio, or with a client that takes none
READERS = 4  # threads that read objects, for all listeners together
_SILENCE = bytes(1 << 16)

ReadObject = Callable[[str], bytes | None]


class Outcome(enum.Enum):
    """Say how a stream went."""

    ENDED = "ended"  # all of the job was sent
    BROKEN = "broken"  # something is missing: the answer was begun and is not to be completed
    NOTHING = "nothing"  # nothing was sent: the job has ended, and there is no audio
    LATE = "late"  # nothing was sent: there was no audio within the time
    LEFT = "left"  # the client has gone


class LivePlayer:
    """Serve all live streams of this process.

    Args:
        max_streams: listeners at once; whoever asks looks at `has_room` first.
        watcher: who looks for the listeners; its listeners are counted.
        read: returns an object's bytes; blocking, called in a few threads.
    """

    def __init__(
        self, *, max_streams: int, watcher: LiveWatcher, read: ReadObject = read_object
    ) -> None:
        self.max_streams = max_streams
        self._watcher, self._read = watcher, read
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="live-read")

    @property
    def has_room(self) -> bool:
        """Whether one more may listen."""
        return len(self._watcher.listeners) < self.max_streams

    async def stream(
        self, job_id: uuid.UUID, form: str, receive: Receive, send: Send, *, start_seconds: float
    ) -> Outcome:
        """Send a job's audio, s16le in the form `wav` or `pcm`, until the job ends.

        Args:
            start_seconds: how long the first audio is waited for.

        Raises:
            TimeoutError: the client took nothing for too long.
        """
        listener = self._watcher.open(job_id)
        told = asyncio.ensure_future(self._play(listener, form, send, start_seconds))
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait({told, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._watcher.listeners.discard(listener)
            for future in (told, gone):
                future.cancel()
            results = await asyncio.gather(told, gone, return_exceptions=True)
        if isinstance(results[0], Exception):
            raise results[0]
        return results[0] if isinstance(results[0], Outcome) else Outcome.LEFT

    async def _play(
        self, listener: Listener, form: str, send: Send, start_seconds: float
    ) -> Outcome:
        has_begun = False
        while True:
            step = await self._next(listener, SILENT_SECONDS if has_begun else start_seconds)
            if isinstance(step, Outcome):
                if not has_begun:
                    return step
                place = listener.place
                if listener.is_gone or place is None or not (place.is_over and place.is_whole):
                    return Outcome.BROKEN
                await send_bytes(send, b"", more=False)
                return Outcome.ENDED
            if isinstance(step, Sound):
                if not has_begun:
                    has_begun = True
                    await send_start(send, form, listener.job_id, step.sample_rate)
                if not await self._send_sound(step, send):
                    return Outcome.BROKEN
            else:
                left = step.num_samples * BYTES_PER_SAMPLE
                while left > 0:
                    await _send_part(send, _SILENCE[: min(left, len(_SILENCE))])
                    left -= len(_SILENCE)

    async def _send_sound(self, sound: Sound, send: Send) -> bool:
        """Send a piece; False where its object is gone, as with a deleted job."""
        loop = asyncio.get_running_loop()
        body = await loop.run_in_executor(self._readers, self._read, sound.key)
        if body is None:
            return False
        await _send_part(send, body[sound.skip * BYTES_PER_SAMPLE :])
        return True

    async def _next(self, listener: Listener, seconds: float) -> Sound | Silence | Outcome:
        """Return what follows, waiting until it is there; an outcome where nothing does."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            listener.changed.clear()
            place = listener.place
            if listener.is_gone:
                return Outcome.NOTHING
            if place is not None:
                step = place.step(listener.states)
                if step is not None:
                    return step
                if place.is_over:
                    return Outcome.NOTHING
                if place.window[0] not in listener.states:
                    self._watcher.hurry()
            try:
                # Python 3.11's wait_for may lose a cancellation, and nothing would wake this again.
                async with asyncio.timeout_at(deadline):
                    await listener.changed.wait()
            except TimeoutError:
                return Outcome.LATE


async def _send_part(send: Send, body: bytes) -> None:
    """Send a part; a client that takes nothing for long loses the stream.

    Raises:
        TimeoutError: it took nothing.
    """
    async with asyncio.timeout(SILENT_SECONDS):
        await send_bytes(send, body)
