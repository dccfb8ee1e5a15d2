"""Load a model once and render many segments with it: the engine's front."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from synth.contract import CodesArray, Reference, RenderSpec, Sampling, SegmentAudio
from synth.engine.codec import encode_reference
from synth.engine.engine_config import EngineConfig
from synth.engine.errors import InvalidSpecError, PromptTooLongError
from synth.engine.generate import prompt_builder
from synth.engine.loaded_models import LoadedModels, load_models
from synth.engine.prompt import Conversation, VoicePrompt
from synth.engine.slot_loop import SlotLoop

_WARM_UP_RATE = 48_000  # not the codec's, so that the resampler is warm as well
_WARM_UP_FRAMES = 4


class Engine:
    """Render segments and encode references on one device; safe to call from many threads."""

    def __init__(self, config: EngineConfig, models: LoadedModels) -> None:
        """Start the device's thread over loaded models; use `Engine.load`."""
        self.config = config
        self._models = models
        self._builder = prompt_builder(models.dual_ar, models.tokenizer)
        self._loop = SlotLoop(models, slots=config.slots, max_positions=config.max_positions)
        self._loop.start()

    @classmethod
    def load(cls, config: EngineConfig) -> Engine:
        """Load a checkpoint and start its engine; `threads` above 0 sets torch's thread count.

        Raises:
            CheckpointError: the checkpoint is incomplete or its parts do not fit.
            InvalidSpecError: the device or a number format is not to be had here.
        """
        if config.threads:
            torch.set_num_threads(config.threads)
        return cls(config, load_models(config))

    def submit(self, spec: RenderSpec, *, priority: int = 0) -> Future[SegmentAudio]:
        """Queue a segment; the future may be cancelled at any time, honoured between two frames.

        Args:
            priority: lower goes first among what waits.

        Returns:
            A future of the segment, or of the EngineError that says what is wrong with it.
        """
        try:
            prompt = self._prompt(spec)
        except Exception as error:
            future: Future[SegmentAudio] = Future()
            future.set_exception(error)
            return future
        return self._loop.submit(prompt, spec.sampling, priority=priority)

    def render(self, spec: RenderSpec) -> SegmentAudio:
        """Render one segment and wait for it; errors as the future of `submit` has them."""
        return self.submit(spec).result()

    def encode_reference(self, waveform: npt.NDArray[np.floating], sample_rate: int) -> CodesArray:
        """Return the codes of a reference clip, int16 [K, T], one frame for each hop begun.

        Args:
            waveform: floats [N] or [channels, N], full scale at 1.
            sample_rate: of the waveform in Hz.

        Raises:
            ReferenceAudioError: the waveform is empty, misshapen or not finite.
        """
        run = partial(
            encode_reference, self._models.encoder, waveform, sample_rate, self._models.resampler
        )
        return self._loop.call(run).codes

    def warm_up(self) -> None:
        """Encode a clip and render a segment, so that no request meets a first use."""
        rng = np.random.default_rng(0)
        noise = rng.normal(0, 0.05, _WARM_UP_RATE).astype(np.float32)
        reference = Reference("Warm up.", self.encode_reference(noise, _WARM_UP_RATE))
        sampling = Sampling(max_frames=_WARM_UP_FRAMES)
        self.render(RenderSpec("Warm up.", reference, sampling))

    @property
    def model_fingerprint(self) -> str:
        """Return the digest of LM weights, tokenizer and prompt version."""
        return self._models.model_fingerprint

    @property
    def codec_fingerprint(self) -> str:
        """Return the digest of what a voice's codes depend on besides its clip."""
        return self._models.codec_fingerprint

    @property
    def resampler(self) -> str:
        """Return the name of the resampler that runs: torchaudio or builtin."""
        return self._models.resampler_name

    @property
    def sample_rate(self) -> int:
        """Return the rate of rendered audio in Hz."""
        return self._models.sample_rate

    @property
    def frame_rate(self) -> float:
        """Return the code frames of one second."""
        return self.sample_rate / self._models.decoder.config.hop_length

    @property
    def device(self) -> str:
        """Return the device's name, such as cpu or cuda:0."""
        return str(self._models.device)

    @property
    def steps(self) -> int:
        """Return a number that grows with everything the device does."""
        return self._loop.steps

    @property
    def is_busy(self) -> bool:
        """Return whether a request or a call is unfinished."""
        return self._loop.is_busy

    def describe(self) -> dict[str, Any]:
        """Return what pages and logs show of this engine."""
        return {
            "device": self.device,
            "dtype": str(self._models.dual_ar.dtype).removeprefix("torch."),
            "codec_encode_dtype": self.config.codec_encode_dtype,
            "codec_decode_dtype": self.config.codec_decode_dtype,
            "resampler": self.resampler,
            "torch": torch.__version__,
            "slots": self.config.slots,
            "slots_in_use": self._loop.slots_in_use,
            "max_positions": self._loop.max_positions,
            "model_fingerprint": self.model_fingerprint,
            "codec_fingerprint": self.codec_fingerprint,
        }

    def close(self) -> None:
        """Stop the device's thread; unfinished requests end with EngineClosedError."""
        self._loop.close()

    def _prompt(self, spec: RenderSpec) -> torch.Tensor:
        """Return the columns of a request that fits into a slot with the speech it may need."""
        if spec.sampling.max_frames < 1:
            raise InvalidSpecError("A segment needs room for at least one frame.")
        voices = [
            VoicePrompt(reference.text, torch.from_numpy(reference.codes.astype(np.int64)))
            for reference in spec.references
        ]
        prompt = Conversation(self._builder, voices).ask(spec.text)
        limit = self._loop.max_positions - spec.sampling.max_frames
        if prompt.shape[1] > limit:
            raise PromptTooLongError(positions=prompt.shape[1], limit=max(limit, 0))
        return prompt
