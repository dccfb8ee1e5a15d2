"""Turn a reference waveform, at any rate and with any channels, into a voice's codes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from synth.contract import CodesArray
from synth.engine.codec.encoder import NOT_FINITE, CodecEncoder
from synth.engine.codec.resample import ResamplerChoice, resample_waveform
from synth.engine.errors import ReferenceAudioError

MAX_CHANNELS = 32  # more means that the axes are exchanged


@dataclass(frozen=True, slots=True, eq=False)
class EncodedReference:
    """Hold a clip's codes, int16 [K, T], which resampler ran, and the samples that were encoded."""

    codes: CodesArray
    resampler_name: str
    num_samples: int


def encode_reference(
    encoder: CodecEncoder,
    waveform: Tensor | npt.NDArray[np.floating],
    sample_rate: int,
    resampler: ResamplerChoice = ResamplerChoice.AUTO,
) -> EncodedReference:
    """Mix a clip to mono, bring it to the codec's rate on the encoder's device, and encode it.

    Args:
        waveform: floats [N] or [channels, N], full scale at 1; neither trimmed nor levelled.
        sample_rate: of the waveform, in Hz.

    Returns:
        One code frame for each hop of samples begun; `num_samples` at the codec's rate.

    Raises:
        ReferenceAudioError: the waveform is empty, of the wrong shape or type, or not finite.
        ResamplerUnavailableError: torchaudio is asked for and cannot be used.
    """
    mono = mono_waveform(waveform, encoder.device)
    resampled, name = resample_waveform(mono, sample_rate, encoder.config.sample_rate, resampler)
    (codes,) = encoder.encode([resampled])
    return EncodedReference(
        codes=codes.to("cpu", torch.int16).numpy(),
        resampler_name=name,
        num_samples=resampled.shape[0],
    )


def mono_waveform(waveform: Tensor | npt.NDArray[np.floating], device: torch.device) -> Tensor:
    """Return the channels' mean, float32 [N] on `device`; errors as for `encode_reference`."""
    if isinstance(waveform, np.ndarray) and not waveform.flags.writeable:
        waveform = waveform.copy()  # torch has no read-only tensors and would warn
    tensor = torch.as_tensor(waveform)
    if not tensor.is_floating_point() or tensor.dim() not in (1, 2):
        raise ReferenceAudioError(
            "A reference waveform must be floats of shape (samples,) or (channels, samples), not "
            f"{tensor.dtype} of shape {tuple(tensor.shape)}."
        )
    if tensor.numel() == 0:
        raise ReferenceAudioError("The reference audio has no samples; use a clip with speech.")
    if tensor.dim() == 2 and tensor.shape[0] > MAX_CHANNELS:
        raise ReferenceAudioError(
            f"A reference waveform has channels first, at most {MAX_CHANNELS}; this one's shape is "
            f"{tuple(tensor.shape)}."
        )
    tensor = tensor.to(torch.float32)
    if not bool(tensor.isfinite().all()):  # before it goes to a device, which nothing waits for
        raise ReferenceAudioError(NOT_FINITE)
    tensor = tensor.to(device, non_blocking=True)
    return tensor.mean(0) if tensor.dim() == 2 else tensor
