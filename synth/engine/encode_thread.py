"""Encode reference clips on an own thread: behind no queue, and with streams going on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import TypeVar

import torch

from synth.engine.codec_thread import CodecThread
from synth.engine.device_lane import DeviceLane
from synth.engine.errors import DeviceOutOfMemoryError, EngineClosedError
from synth.engine.out_of_memory import free_cached_memory, is_out_of_memory

T = TypeVar("T")


class EncodeThread:
    """Run one encoding at a time, between the passes of the codec's thread.

    Frames are made and streams decoded meanwhile; finished segments wait, because memory is planned
    for one of the two at a time.
    """

    def __init__(self, codec: CodecThread, device: torch.device) -> None:
        """Prepare the thread; it begins with the first call."""
        self._codec, self._device = codec, device
        self._lane = DeviceLane(device, is_urgent=False)
        self._pool = ThreadPoolExecutor(1, "engine-encode")
        self._unfinished, self._lock = 0, threading.Lock()

    @property
    def is_busy(self) -> bool:
        """Return whether a call is unfinished."""
        return self._unfinished > 0

    def run(self, encode: Callable[[], T]) -> T:
        """Run an encoding on the thread, wait for it and return what it returns.

        Raises:
            EngineClosedError: the thread was closed before its turn.
            DeviceOutOfMemoryError: no memory was left for it.
        """
        try:
            future = self._pool.submit(self._encode, encode)
        except RuntimeError as error:
            raise EngineClosedError(
                "The engine is closed; another worker can encode this clip."
            ) from error
        with self._lock:
            self._unfinished += 1
        future.add_done_callback(self._note_done)
        try:
            return future.result()
        except CancelledError as error:
            raise EngineClosedError("The engine was closed before it encoded this clip.") from error

    def close(self) -> None:
        """Wait for the encoding that runs; those that wait end with EngineClosedError."""
        self._pool.shutdown(cancel_futures=True)

    def _note_done(self, _: object) -> None:
        with self._lock:
            self._unfinished -= 1

    def _encode(self, encode: Callable[[], T]) -> T:
        with self._codec.paused(), self._lane.entered():
            try:
                return encode()
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
            free_cached_memory(self._device)
            raise DeviceOutOfMemoryError(
                "The device has no memory left to encode this clip; use a shorter clip, or "
                "lower TTS_ENGINE_SLOTS."
            )
