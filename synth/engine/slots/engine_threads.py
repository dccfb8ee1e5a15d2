"""Set up the threads that share a device: one makes codes, one audio, one encodes clips."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any, TypeVar

import torch

from synth.contract import MAX_TOP_K
from synth.engine.codec.streams import ChunkSchedule
from synth.engine.device import DeviceLane, free_cached_memory, is_out_of_memory
from synth.engine.errors import DeviceOutOfMemoryError, EngineClosedError
from synth.engine.loading.engine_config import EngineConfig
from synth.engine.loading.loaded_models import LoadedModels
from synth.engine.loading.memory import MemoryPlan
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.graphs import EagerSteps, StepRunner, capture_steps, find_backend
from synth.engine.model.prefill import PrefixCache
from synth.engine.slots.batch import SlotBatch
from synth.engine.slots.codec_thread import CodecThread
from synth.engine.slots.loop import SlotLoop, WorkCounter

WAITING_FRAMES_PER_SLOT = 256  # of finished segments, 12 s of audio, before fewer are begun
T = TypeVar("T")


class EngineThreads:
    """Own everything that changes while an engine works."""

    def __init__(self, config: EngineConfig, models: LoadedModels, plan: MemoryPlan) -> None:
        """Allocate the slots and capture their graphs; the threads start with `start`.

        Raises:
            SlotsDoNotFitError, GraphCaptureError: as for `capture_steps`.
            InvalidSpecError: as for `find_backend`.
        """
        backend = find_backend(config.graphs, models.device)
        self._has_kernels = models.dual_ar.has_own_frames
        self.state = DecodeState.allocate(
            models.dual_ar,
            num_slots=plan.slots,
            max_positions=min(config.max_positions, models.max_positions),
            max_top_k=min(MAX_TOP_K, models.dual_ar.slow.head_tokens.shape[0]),
            strict=config.strict,
        )
        self.counter = WorkCounter((models.encoder, models.decoder))
        self.prefixes = PrefixCache(plan.parts["prefix_cache"])
        self.codec = CodecThread(
            models.decoder,
            pass_frames=plan.codec_frames,
            most_waiting=WAITING_FRAMES_PER_SLOT * plan.slots,
            is_strict=config.strict,
            num_threads=_codec_threads(models.device),
            on_progress=lambda: self.slots.wake(),
        )
        self.encoding = EncodeThread(self.codec, models.device)
        runner: StepRunner = EagerSteps(models.dual_ar, self.state)
        if backend is not None:
            runner = capture_steps(models.dual_ar, self.state, backend)
            self.codec.record_streams(ChunkSchedule(first=1))
        batch = SlotBatch(models.dual_ar, self.state, self.prefixes, runner)
        self.slots = SlotLoop(batch, self.codec, self.counter, models.device)

    @property
    def is_busy(self) -> bool:
        return self.slots.is_busy or self.encoding.is_busy

    def start(self) -> None:
        self.codec.start()
        self.slots.start()

    def describe(self) -> dict[str, Any]:
        """Return how far the threads are and what they keep, for pages and logs."""
        batch = self.slots.batch
        return {
            "slots_in_use": batch.num_running,
            "frames_made": self.slots.frames_made,
            "slot_limit": self.slots.limit.now,
            "bucket": batch.bucket,
            "kernels": "on" if self._has_kernels else "off",
            **batch.runner.describe(),
            **self.codec.describe(),
            "waiting": self.slots.num_waiting,
            "codec_waiting_frames": self.codec.waiting_frames,
            "max_positions": self.state.max_positions,
            "prefix_cache": {
                "prefixes": len(self.prefixes),
                "bytes": self.prefixes.num_bytes,
                "max_bytes": self.prefixes.max_bytes,
                "hits": self.prefixes.hits,
                "misses": self.prefixes.misses,
            },
        }

    def close(self) -> None:
        """Stop the threads; what is unfinished ends with EngineClosedError."""
        self.slots.close()
        self.codec.close()
        self.encoding.close()
        self.counter.close()


def _codec_threads(device: torch.device) -> int:
    """Return torch's threads for the codec: half of the frames' on a CPU, where both share cores.

    On two cores segments took as long with one or two threads for either, within what the machine
    varies by; with half the codec takes the frames' cores from them less often.
    """
    return max(torch.get_num_threads() // 2, 1) if device.type == "cpu" else 0


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
