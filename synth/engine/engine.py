"""Load a model once and render many segments with it: the engine's front."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from synth.contract import (
    MAX_TOP_K,
    AudioArray,
    CodesArray,
    Reference,
    RenderSpec,
    Sampling,
    SegmentAudio,
)
from synth.engine.codec.halves import encode_reference
from synth.engine.codec.streams import ChunkSchedule
from synth.engine.device import DeviceLane, free_cached_memory, is_out_of_memory, keep_heap
from synth.engine.errors import (
    DeviceOutOfMemoryError,
    EngineClosedError,
    InvalidSpecError,
    PromptTooLongError,
)
from synth.engine.loading.engine_config import EngineConfig
from synth.engine.loading.loaded_models import LoadedModels, check_folder, engine_class, load_models
from synth.engine.loading.memory import MemoryPlan, held_bytes, memory_report
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.graphs import StepRunner, capture_steps, find_backend
from synth.engine.model.prefill import PrefixCache, PrefixKeys
from synth.engine.prompt import PromptParts, prompt_builder
from synth.engine.slots.batch import SlotBatch
from synth.engine.slots.codec_thread import CodecThread
from synth.engine.slots.loop import SlotLoop, WorkCounter
from synth.engine.slots.requests import AudioStream, LiveAudio, SlotRequest
from synth.engine.slots.sizing import plan_engine, plan_loaded

logger = logging.getLogger(__name__)
T = TypeVar("T")

WAITING_FRAMES_PER_SLOT = 256  # of finished segments, 12 s of audio, before fewer are begun
_WARM_UP_RATE = 48_000  # not the codec's, so that the resampler is warm as well
_WARM_UP_FRAMES = 4
_FIRST_CHUNK = 1  # frames, 46 ms of sound: as long as most devices take for the next two


class Engine:
    """Render segments and encode references on one device; safe to call from many threads."""

    def __init__(
        self, config: EngineConfig, models: LoadedModels, plan: MemoryPlan | None = None
    ) -> None:
        """Start the device's thread over loaded models; use `Engine.load`.

        Without a plan one is made for what the device has left; SlotsDoNotFitError as there.
        """
        self.config = config
        self.engine_class = engine_class(config, models)
        self.model_fingerprint = models.model_fingerprint
        self.codec_fingerprint = models.codec_fingerprint
        self.resampler = models.resampler_name
        self.sample_rate = models.sample_rate  # of rendered audio, in Hz
        self.frame_rate = self.sample_rate / models.decoder.config.hop_length  # frames a second
        self.device = str(models.device)
        self._models = models
        self._plan = plan_loaded(config, models) if plan is None else plan
        self._threads = EngineThreads(config, models, self._plan)
        keys = PrefixKeys.of(models.model_fingerprint, models.dual_ar, self._threads.state)
        self._prompts = PromptParts(prompt_builder(models.dual_ar, models.tokenizer), keys)
        self._held_bytes = held_bytes(models, self._threads)
        logger.info(
            "engine memory: slots=%d max_positions=%d predicted_held_bytes=%d held_bytes=%d "
            "predicted_total_bytes=%d",
            self._plan.slots,
            self._plan.max_positions,
            self._plan.held,
            self._held_bytes,
            self._plan.total,
        )
        if models.device.type == "cpu":
            keep_heap()
        self._threads.start()

    @classmethod
    def load(cls, config: EngineConfig) -> Engine:
        """Load a checkpoint and start its engine; `threads` above 0 sets torch's thread count.

        Raises:
            CheckpointError: the checkpoint is incomplete or its parts do not fit.
            InvalidSpecError: the device or a number format is not to be had here.
            SlotsDoNotFitError: the device has no memory for the slots; nothing was loaded, or
                memory ran out while graphs were captured.
            GraphCaptureError: the device refuses to capture the decode step.
        """
        if config.threads:
            torch.set_num_threads(config.threads)
        check_folder(config.checkpoint)
        plan = plan_engine(config)
        return cls(config, load_models(config), plan)

    def submit(
        self,
        spec: RenderSpec,
        *,
        priority: int = 0,
        deadline_seconds: float | None = None,
        on_audio: Callable[[AudioArray], None] | None = None,
    ) -> Future[SegmentAudio]:
        """Queue a segment; the future may be cancelled at any time, honoured between two frames.

        Args:
            priority: lower goes first among what waits.
            deadline_seconds: from now; what is not done then ends with DeadlineExceededError.
            on_audio: is given the samples in order, float32 [N] each, while they are made; all of
                them before the future is done. An engine's thread calls it: it returns at once.

        Returns:
            A future of the segment, or of the EngineError that says what is wrong with it.
        """
        try:
            request = self._request(spec, priority, deadline_seconds)
            if on_audio is not None:
                request.live = LiveAudio(ChunkSchedule(first=_FIRST_CHUNK), on_audio)
        except Exception as error:  # noqa: BLE001
            future: Future[SegmentAudio] = Future()
            future.set_exception(error)
            return future
        return self._threads.slots.submit(request)

    def render(self, spec: RenderSpec) -> SegmentAudio:
        """Render one segment and wait for it; errors as the future of `submit` has them."""
        return self.submit(spec).result()

    def stream(
        self,
        spec: RenderSpec,
        *,
        priority: int = 0,
        deadline_seconds: float | None = None,
        chunks: ChunkSchedule | None = None,
    ) -> AudioStream:
        """Return an iterator over a segment's audio, float32 [N] each, from its first frames on.

        Together the chunks are the audio of `render`. Arguments as for `submit`.

        Args:
            chunks: how many frames each chunk has; the default's first one has 1.

        Raises:
            EngineError: what is wrong with the request; what ends it later is raised by iterating.
        """
        request = self._request(spec, priority, deadline_seconds)
        request.live = live = LiveAudio(chunks or ChunkSchedule(first=_FIRST_CHUNK))
        return AudioStream(live, self._threads.slots.submit(request), self.sample_rate)

    def encode_reference(self, waveform: npt.NDArray[np.floating], sample_rate: int) -> CodesArray:
        """Return the codes of a reference clip, int16 [K, T], one frame for each hop begun.

        Runs at once on a thread of its own; of the segments that wait for the codec, streams alone
        go on meanwhile.

        Args:
            waveform: floats [N] or [channels, N], full scale at 1.
            sample_rate: of the waveform in Hz.

        Raises:
            ReferenceAudioError: the waveform is empty, misshapen or not finite.
            DeviceOutOfMemoryError: the clip is too long for the memory left.
        """
        run = partial(
            encode_reference, self._models.encoder, waveform, sample_rate, self._models.resampler
        )
        return self._threads.encoding.run(run)

    def forget_voice(self, reference: Reference | tuple[Reference, ...]) -> None:
        """Free what is kept of a deleted voice; segments that speak with it go on."""
        references = (reference,) if isinstance(reference, Reference) else reference
        key = self._prompts.forget(references)
        self._threads.slots.post(partial(self._threads.prefixes.evict, key))

    def warm_up(self) -> None:
        """Encode a clip, render and stream a segment, so that no request meets a first use."""
        rng = np.random.default_rng(0)
        noise = rng.normal(0, 0.05, _WARM_UP_RATE).astype(np.float32)
        reference = Reference("Warm up.", self.encode_reference(noise, _WARM_UP_RATE))
        spec = RenderSpec("Warm up.", reference, Sampling(max_frames=_WARM_UP_FRAMES))
        self.render(spec)
        for _ in self.stream(spec):
            pass

    @property
    def slots(self) -> int:
        """Return how many segments are decoded at once, also where the engine chose it.

        Fewer than planned where memory ran out while graphs were captured.
        """
        return self._threads.slots.limit.most

    @property
    def steps(self) -> int:
        """Return a number that grows with everything the device does."""
        return self._threads.counter.count

    @property
    def undecoded(self) -> int:
        """Return how many requests wait for a slot or are in one; the others wait for the codec."""
        return self._threads.slots.num_waiting + self._threads.slots.batch.num_running

    @property
    def is_busy(self) -> bool:
        return self._threads.slots.is_busy or self._threads.encoding.is_busy

    def describe(self) -> dict[str, Any]:
        model = self._models.dual_ar
        return {
            "device": self.device,
            "dtype": str(model.dtype).removeprefix("torch."),
            "weights": model.weight_format,
            "strict": self.config.strict,
            "codec_encode_dtype": self.config.codec_encode_dtype,
            "codec_decode_dtype": self.config.codec_decode_dtype,
            "resampler": self.resampler,
            "torch": torch.__version__,
            "slots": self.slots,
            **self._threads.describe(),
            "backend": self.engine_class.backend,
            "sampler_version": self.engine_class.sampler,
            "model_fingerprint": self.model_fingerprint,
            "codec_fingerprint": self.codec_fingerprint,
            "memory": memory_report(self._plan, self._models.device, self._held_bytes),
        }

    def close(self) -> None:
        """Stop the device's threads; unfinished requests end with EngineClosedError."""
        self._threads.close()

    def _request(
        self, spec: RenderSpec, priority: int, deadline_seconds: float | None
    ) -> SlotRequest:
        """Return a request that fits into a slot with the speech it may need."""
        if spec.sampling.max_frames < 1:
            raise InvalidSpecError("A segment needs room for at least one frame.")
        if deadline_seconds is not None and not deadline_seconds > 0:
            raise InvalidSpecError(
                f"A deadline must be more than 0 seconds, not {deadline_seconds} s."
            )
        prefix = self._prompts.prefix(spec.references)
        request = SlotRequest(
            prefix=prefix.columns,
            own=self._prompts.own(spec.text),
            voice=prefix.key,
            sampling=spec.sampling,
            priority=priority,
            deadline_seconds=deadline_seconds,
        )
        limit = self._threads.state.max_positions - spec.sampling.max_frames
        if request.positions > limit:
            raise PromptTooLongError(positions=request.positions, limit=max(limit, 0))
        return request


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
            # On a CPU half of the frames', with which it shares cores: on two cores segments took
            # as long with one or two threads for either, within what the machine varies by; with
            # half the codec takes the frames' cores from them less often.
            num_threads=max(torch.get_num_threads() // 2, 1) if models.device.type == "cpu" else 0,
            on_progress=lambda: self.slots.wake(),
        )
        self.encoding = EncodeThread(self.codec, models.device)
        if backend is None:
            runner = StepRunner(models.dual_ar, self.state)
        else:
            runner = capture_steps(models.dual_ar, self.state, backend)
            self.codec.record_streams(ChunkSchedule(first=1))
        batch = SlotBatch(models.dual_ar, self.state, self.prefixes, runner)
        self.slots = SlotLoop(batch, self.codec, self.counter, models.device)

    def start(self) -> None:
        self.codec.start()
        self.slots.start()

    def describe(self) -> dict[str, Any]:
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
        for part in (self.slots, self.codec, self.encoding, self.counter):
            part.close()


class EncodeThread:
    """Run one encoding at a time, between the passes of the codec's thread.

    Frames are made and streams decoded meanwhile; finished segments wait, because memory is planned
    for one of the two at a time.
    """

    def __init__(self, codec: CodecThread, device: torch.device) -> None:
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
            message = "The engine is closed; another worker can encode this clip."
            raise EngineClosedError(message) from error
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
