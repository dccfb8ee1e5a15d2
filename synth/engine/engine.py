"""Load a model once and render many segments with it: the engine's front."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from synth.contract import (
    MAX_TOP_K,
    AudioArray,
    CodesArray,
    Reference,
    RenderSpec,
    Sampling,
    SegmentAudio,
    room_needed,
)
from synth.engine.codec.halves import encode_reference
from synth.engine.codec.load import decoding_precision
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
from synth.engine.model.decode import StepRunner, capture_steps, find_backend
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.prefill import PrefixCache
from synth.engine.prompt import PromptParts, prompt_builder
from synth.engine.slots.batch import SlotBatch
from synth.engine.slots.codec_thread import CodecThread
from synth.engine.slots.loop import SlotLoop
from synth.engine.slots.requests import AudioStream, LiveAudio, SlotRequest
from synth.engine.slots.sizing import plan_engine

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
        """Allocate slots over loaded models and start the device's threads; use `Engine.load`.

        Without a plan one is made for what the device has left. Errors as there.
        """
        backend = find_backend(config.graphs, models.device)
        self.config = config
        self.engine_class = engine_class(config, models)
        self.model_fingerprint = models.model_fingerprint
        self.codec_fingerprint = models.codec_fingerprint
        self.resampler = models.resampler_name
        self.sample_rate = models.sample_rate  # of rendered audio, in Hz
        self.frame_rate = self.sample_rate / models.decoder.config.hop_length  # frames a second
        self.device = str(models.device)
        self._models = models
        self._plan = plan = plan_engine(config, models) if plan is None else plan
        self._prompts = PromptParts(prompt_builder(models.dual_ar, models.tokenizer))
        self._state = state = DecodeState.allocate(
            models.dual_ar,
            num_slots=plan.slots,
            max_positions=plan.max_positions,
            max_top_k=min(MAX_TOP_K, models.dual_ar.slow.head_tokens.shape[0]),
            strict=config.strict,
        )
        self._counter = WorkCounter((models.encoder, models.decoder))
        self._prefixes = PrefixCache(plan.parts["prefix_cache"])
        self._codec = CodecThread(
            models.decoder,
            pass_frames=plan.codec_frames,
            most_waiting=WAITING_FRAMES_PER_SLOT * plan.slots,
            is_strict=config.strict,
            # On a CPU half of the frames', with which it shares cores: on two cores segments took
            # as long with one or two threads for either, within what the machine varies by; with
            # half the codec takes the frames' cores from them less often.
            num_threads=max(torch.get_num_threads() // 2, 1) if models.device.type == "cpu" else 0,
            on_progress=lambda: self._slots.wake(),
        )
        self._encoding = EncodeThread(self._codec, models.device)
        if backend is None:
            runner = StepRunner(models.dual_ar, state)
        else:
            runner = capture_steps(models.dual_ar, state, backend)
            self._codec.record_streams(ChunkSchedule(first=_FIRST_CHUNK))
        batch = SlotBatch(
            models.dual_ar,
            state,
            self._prefixes,
            runner,
            urgent_first=models.device.type == "cpu",
        )
        self._slots = SlotLoop(batch, self._codec, models.device, self._counter.note)
        self._held_bytes = held_bytes(self)
        logger.info(
            "engine memory: slots=%d max_positions=%d predicted_held_bytes=%d held_bytes=%d "
            "predicted_total_bytes=%d",
            plan.slots,
            plan.max_positions,
            plan.held,
            self._held_bytes,
            plan.total,
        )
        if models.device.type == "cpu":
            keep_heap()
        self._codec.start()
        self._slots.start()

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
            priority: lower goes first among what waits, and on a CPU for a while alone.
            deadline_seconds: from now; what is not done then ends with DeadlineExceededError.
            on_audio: is given the samples in order, float32 [N] each, while they are made; all of
                them before the future is done. An engine's thread calls it: it returns at once.

        Returns:
            A future of the segment, or of the EngineError that says what is wrong with it.
        """
        try:
            live = None
            if on_audio is not None:
                live = LiveAudio(ChunkSchedule(first=_FIRST_CHUNK), on_audio)
            request = self._request(spec, priority, deadline_seconds, live)
        except Exception as error:  # noqa: BLE001
            future: Future[SegmentAudio] = Future()
            future.set_exception(error)
            return future
        return self._slots.submit(request)

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
        live = LiveAudio(chunks or ChunkSchedule(first=_FIRST_CHUNK))
        request = self._request(spec, priority, deadline_seconds, live)
        return AudioStream(live, self._slots.submit(request), self.sample_rate)

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
        return self._encoding.run(run)

    def forget_voice(self, reference: Reference | tuple[Reference, ...]) -> None:
        """Free what is kept of a deleted voice; segments that speak with it go on."""
        references = (reference,) if isinstance(reference, Reference) else reference
        key = self._prompts.forget(references)
        self._slots.post(partial(self._prefixes.evict, key))

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
        return self._slots.limit.most

    @property
    def steps(self) -> int:
        """Return a number that grows with everything the device does."""
        return self._counter.count

    @property
    def undecoded(self) -> int:
        """Return how many requests wait for a slot or are in one; the others wait for the codec."""
        return self._slots.num_waiting + self._slots.batch.num_running

    @property
    def is_busy(self) -> bool:
        return self._slots.is_busy or self._encoding.is_busy

    def describe(self) -> dict[str, Any]:
        model, slots, prefixes = self._models.dual_ar, self._slots, self._prefixes
        return {
            "device": self.device,
            "dtype": str(model.dtype).removeprefix("torch."),
            "weights": model.weight_format,
            "strict": self.config.strict,
            "codec_encode_dtype": self.config.codec_encode_dtype,
            "codec_decode_dtype": decoding_precision(
                self.config.codec_decode_dtype, self._models.device
            ),
            "resampler": self.resampler,
            "torch": torch.__version__,
            "slots": self.slots,
            "slots_in_use": slots.batch.num_running,
            "frames_made": slots.frames_made,
            "slot_limit": slots.limit.now,
            "bucket": slots.batch.bucket,
            "kernels": "on" if model.has_own_frames else "off",
            **slots.batch.runner.describe(),
            **self._codec.describe(),
            "waiting": slots.num_waiting,
            "codec_waiting_frames": self._codec.waiting_frames,
            "max_positions": self._state.max_positions,
            "prefix_cache": {
                "prefixes": len(prefixes),
                "bytes": prefixes.num_bytes,
                "max_bytes": prefixes.max_bytes,
                "hits": prefixes.hits,
                "misses": prefixes.misses,
            },
            "backend": self.engine_class.backend,
            "sampler_version": self.engine_class.sampler,
            "model_fingerprint": self.model_fingerprint,
            "codec_fingerprint": self.codec_fingerprint,
            "memory": memory_report(self._plan, self._models.device, self._held_bytes),
        }

    def close(self) -> None:
        """Stop the device's threads; unfinished requests end with EngineClosedError."""
        for part in (self._slots, self._codec, self._encoding, self._counter):
            part.close()

    def _request(
        self,
        spec: RenderSpec,
        priority: int,
        deadline_seconds: float | None,
        live: LiveAudio | None,
    ) -> SlotRequest:
        """Return a request that fits into a slot with the speech that it needs."""
        if spec.sampling.max_frames < 1:
            raise InvalidSpecError("A segment needs room for at least one frame.")
        if deadline_seconds is not None and not deadline_seconds > 0:
            raise InvalidSpecError(
                f"A deadline must be more than 0 seconds, not {deadline_seconds} s."
            )
        voice, prefix = self._prompts.prefix(spec.references)
        request = SlotRequest(
            prefix=prefix,
            own=self._prompts.own(spec.text, spec.history),
            voice=voice,
            sampling=spec.sampling,
            priority=priority,
            deadline_seconds=deadline_seconds,
            live=live,
        )
        limit = self._state.max_positions - room_needed(spec.sampling.max_frames)
        if request.positions > limit:
            raise PromptTooLongError(positions=request.positions, limit=max(limit, 0))
        return request


class EncodeThread:
    """Run one encoding at a time, between the passes of the codec's thread.

    Frames are made and streams decoded meanwhile; finished segments wait, because memory is planned
    for one of the two at a time.
    """

    def __init__(self, codec: CodecThread, device: torch.device) -> None:
        self._codec, self._device = codec, device
        self._lane = DeviceLane(device, is_urgent=False)
        self._pool = ThreadPoolExecutor(1, "engine-encode")
        self._unfinished: set[Future[Any]] = set()

    @property
    def is_busy(self) -> bool:
        return bool(self._unfinished)

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
        self._unfinished.add(future)
        future.add_done_callback(self._unfinished.discard)
        try:
            return future.result()
        except CancelledError as error:
            raise EngineClosedError("The engine was closed before it encoded this clip.") from error

    def close(self) -> None:
        """Wait for the encoding that runs; those that wait end with EngineClosedError."""
        self._pool.shutdown(cancel_futures=True)

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


class WorkCounter:
    """Grow with everything done: frames, prompts, and every layer of the codec.

    On a slow processor one pass of the codec takes minutes, so its layers count one by one.
    """

    def __init__(self, halves: Iterable[nn.Module]) -> None:
        self.count = 0
        self._hooks = [
            module.register_forward_pre_hook(self.note)
            for half in halves
            for module in half.modules()
            if not any(module.children())
        ]

    def note(self, *_: object) -> None:
        """Count one step; several threads may, and one lost between them does not matter."""
        self.count += 1

    def close(self) -> None:
        """Stop counting layers; the codec may live on in another engine."""
        for hook in self._hooks:
            hook.remove()
