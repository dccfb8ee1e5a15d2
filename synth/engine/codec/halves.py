"""Turn codes into audio and audio into codes: the two halves of the codec, loaded apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synth.contract import CodesArray
from synth.engine.codec.config import CodecConfig
from synth.engine.codec.layers import (
    MAX_PIECE_FRAMES,
    ROPE_ROWS,
    Past,
    StateLayout,
    StreamState,
    group_by_length,
    rope_of,
)
from synth.engine.codec.resample import ResamplerChoice, resample_waveform
from synth.engine.codec.stages import (
    DecodingQuantizer,
    EncodingQuantizer,
    WaveDecoder,
    WaveEncoder,
)
from synth.engine.errors import InvalidSpecError, ReferenceAudioError

if TYPE_CHECKING:
    from synth.engine.codec.load import CompiledDecoder

_NO_SAMPLES = "The reference audio has no samples; use a clip with speech."
NOT_FINITE = "The reference audio contains values that are not finite; export the clip again."
# 3 s of audio; a full-size encoder takes about 4 MB a frame. More at once is no faster: on a CPU
# the tensors of many frames leave the heap and are mapped anew at each operation.
PIECE_FRAMES = 64
MAX_CHANNELS = 32  # more means that the axes are exchanged
# A full-size decoder takes about 5 MB a frame. On a CPU the tensors of more frames leave the heap
# and are mapped anew at each operation: 64 at once take up to a third less time than 150 to 480.
_CPU_FRAMES = 64
MAX_BATCH_FRAMES = 512  # 24 s of audio; on CUDA more at once is no faster


def default_batch_frames(device_type: str) -> int:
    """Return how many frames at once suit a device of this type (`cpu`, `cuda`) with room."""
    return _CPU_FRAMES if device_type == "cpu" else MAX_BATCH_FRAMES


def frame_limit(max_batch_frames: int | None, device_type: str) -> int:
    """Return the limit that was asked for, or the default; ValueError where it is below 1."""
    limit = default_batch_frames(device_type) if max_batch_frames is None else max_batch_frames
    if limit < 1:
        raise ValueError(f"max_batch_frames is {limit} and must be at least 1")
    return limit


class _Half(nn.Module):
    """Hold the sizes of a half; its weights do not change after it is loaded."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.config = config

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype


class CodecDecoder(_Half):
    """Hold the decoding half; `compiled` does its layers' work where it is set."""

    compiled: CompiledDecoder | None = None

    def __init__(self, config: CodecConfig) -> None:
        super().__init__(config)
        self.quantizer = DecodingQuantizer(config)
        self.decoder = WaveDecoder(config)

    @property
    def has_own_layers(self) -> bool:
        """Return whether its convolutions are none of PyTorch's."""
        return self.compiled is not None or self.decoder.fused is not None

    @cached_property
    def layout(self) -> StateLayout:
        return StateLayout(self.modules())

    def initial_state(self) -> StreamState:
        return self.layout.initial(self.quantizer.post_module.norm.weight)

    def run(self, codes: Tensor, state: StreamState, piece: int) -> tuple[Tensor, StreamState]:
        """Return the samples of the next frames, and the state after them.

        Args:
            codes: int64 [B, K, n] on the model's device, n at least 1.
            state: of these B streams; written over, so give a copy where it is still needed.
            piece: frames that go through the layers at once.

        Returns:
            The samples [B, hop_length * n] in the model's dtype, and the new state.
        """
        length, waves = codes.shape[-1], []
        for start, stop in pairwise([*range(0, length, piece), length]):
            rope = rope_of(state, stop - start)
            waves.append(self.advance(codes[..., start:stop], state.rows, state.frames, rope))
            counts = tuple(count + stop - start for count in state.counts)
            state = StreamState(state.rows, state.frames, counts)
        return (waves[0] if len(waves) == 1 else torch.cat(waves, dim=-1)), state

    def advance(self, codes: Tensor, rows: Tensor, frames: Tensor, rope: Tensor) -> Tensor:
        """Return the samples of the next frames, and move a state's tensors on in place.

        Args:
            codes: int64 [B, K, n]; rows, frames: as in `StreamState`.
            rope: rotary numbers of these frames, float32 [B, n, head_dim / 2, 2].
        """
        if self.compiled is not None:
            wave = self.compiled.advance(codes, rows, frames, rope)
        else:
            past = Past(self.layout.views(rows), frames, rope)
            wave = self.decoder(self.quantizer(codes, past), past)[:, 0]
        frames += codes.shape[-1]
        return wave

    def check_codes(self, codes: Sequence[Tensor], *, may_wait: bool = True) -> None:
        """Raise InvalidSpecError unless each is integers [K, T], none negative.

        Waits for the device once at most, where codes are on one; those are taken as they are
        where it may not.
        """
        shape = f"({self.config.num_codebooks}, frames)"
        for matrix in codes:
            is_integer = not (matrix.is_floating_point() or matrix.is_complex())
            is_integer = is_integer and matrix.dtype is not torch.bool
            if not is_integer or matrix.dim() != 2 or len(matrix) != self.config.num_codebooks:
                raise InvalidSpecError(
                    f"Codes must be integers of shape {shape}, not {matrix.dtype} of shape "
                    f"{tuple(matrix.shape)}."
                )
        seen = [matrix for matrix in codes if matrix.numel() and (may_wait or matrix.is_cpu)]
        if self.compiled is not None:  # on the host, without an operation of PyTorch
            arrays = [matrix.cpu().numpy() for matrix in seen]
            has_negative = any(array.min() < 0 for array in arrays)
        else:
            least = [matrix.min().to(torch.int64) for matrix in seen]
            together = [number.to(least[0].device) for number in least]
            has_negative = bool(together) and bool(torch.stack(together).min() < 0)
        if has_negative:
            raise InvalidSpecError("Codes must not be negative; these hold one that is.")

    @torch.inference_mode()
    def decode(
        self,
        codes: Sequence[Tensor],
        *,
        max_batch_frames: int | None = None,
        may_wait: bool = True,
    ) -> list[Tensor]:
        """Return the audio of code matrices of any lengths; each is decoded as if it were alone.

        Args:
            codes: integer tensors [K, T] on any device, left as they are. A code above its
                codebook means the last row.
            max_batch_frames: padded frames that go through the model at once, at least 1; None
                means `default_batch_frames`. Of a longer matrix one part goes after the other,
                which changes no more than rounding.
            may_wait: codes on a device are looked at, for which it is waited; those that our own
                frames made need not be, and a negative one then means the first row.

        Returns:
            For each matrix float32 [hop_length * T] on the model's device; empty for no frames.

        Raises:
            InvalidSpecError: a matrix is not of integers, has another number of rows than the
                codec has codebooks, or holds a negative code.
            ValueError: `max_batch_frames` is below 1.
        """
        self.check_codes(codes, may_wait=may_wait)
        limit = frame_limit(max_batch_frames, self.device.type)
        hop = self.config.hop_length
        lengths = [matrix.shape[1] for matrix in codes]
        empty = torch.empty(0, dtype=torch.float32, device=self.device)
        audio: list[Tensor] = [empty] * len(lengths)
        spoken = [index for index, length in enumerate(lengths) if length]
        for group in group_by_length([lengths[index] for index in spoken], limit):
            indices = [spoken[member] for member in group]
            waves = self._decode_batch([codes[index] for index in indices], limit)
            for index, wave in zip(indices, waves, strict=True):
                samples = hop * lengths[index]
                audio[index] = wave if len(wave) == samples else wave[:samples]
        return audio

    def _decode_batch(self, codes: Sequence[Tensor], limit: int) -> Sequence[Tensor]:
        """Return each matrix's samples, or more; the longest one comes first."""
        longest = codes[0].shape[1]
        if self.compiled is not None and longest <= limit:
            return self.compiled.each(codes)
        moved = (matrix.to(self.device, torch.int64) for matrix in codes)
        batch = torch.stack([F.pad(matrix, (0, longest - matrix.shape[1])) for matrix in moved])
        if longest > limit:  # a matrix on its own, see `group_by_length`
            piece = min(limit, MAX_PIECE_FRAMES)
            samples, _ = self.run(batch, self.initial_state(), piece)
            return samples.float().unbind()
        wave: Tensor = self.decoder(self.quantizer(batch))
        return wave[:, 0].float().unbind()


class CodecEncoder(_Half):
    """Hold the encoding half."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__(config)
        self.encoder = WaveEncoder(config)
        self.quantizer = EncodingQuantizer(config)

    @cached_property
    def _layout(self) -> StateLayout:
        return StateLayout(self.modules())

    @torch.inference_mode()
    def encode(self, waveform: Tensor, *, piece_frames: int = PIECE_FRAMES) -> Tensor:
        """Return the codes, int64 [K, ceil(N / hop_length)], of a mono waveform.

        Args:
            waveform: floats [N] at the codec's sample rate, N above 0, on any device.
            piece_frames: how many go through the model at once, at least 1, which changes no more
                than rounding.

        Raises:
            ReferenceAudioError: a sample is not finite, as one may be that a filter made.
        """
        is_finite = waveform.isfinite().all()
        hop, rate = self.config.hop_length, math.prod(self.config.downsample_factors)
        samples = waveform.to(self.device, self.dtype)
        samples = F.pad(samples, (0, -len(samples) % hop))[None, None]
        frames = samples.shape[-1] // hop
        carried = self._layout.views(samples.new_zeros(1, self._layout.size))

        def past(start: int, stop: int) -> Past:
            positions = torch.full((1,), start, dtype=torch.int64, device=self.device)
            return Past(carried, positions, ROPE_ROWS.rows(start, stop, self.device)[None])

        codes = []
        for start, stop in pairwise([*range(0, frames, piece_frames), frames]):
            part = samples[..., start * hop : stop * hop]
            latents = self.encoder(part, past(start * rate, stop * rate))
            codes.append(self.quantizer(latents, past(start, stop))[0])
        # Asked for behind the work, so that a device is waited for once and not on the way.
        if not is_finite:
            raise ReferenceAudioError(NOT_FINITE)
        return torch.cat(codes, dim=-1)


def encode_reference(
    encoder: CodecEncoder,
    waveform: Tensor | npt.NDArray[np.floating],
    sample_rate: int,
    resampler: ResamplerChoice = ResamplerChoice.AUTO,
) -> CodesArray:
    """Mix a clip to mono, bring it to the codec's rate on the encoder's device, and encode it.

    Args:
        waveform: floats [N] or [channels, N], full scale at 1; neither trimmed nor levelled.
        sample_rate: of the waveform, in Hz.

    Returns:
        Codes, int16 [K, T], one frame for each hop of samples begun at the codec's rate.

    Raises:
        ReferenceAudioError: the waveform is empty, of the wrong shape or type, or not finite.
        ResamplerUnavailableError: torchaudio is asked for and cannot be used.
    """
    mono = mono_waveform(waveform, encoder.device)
    resampled, _ = resample_waveform(mono, sample_rate, encoder.config.sample_rate, resampler)
    found: CodesArray = encoder.encode(resampled).to("cpu", torch.int16).numpy()
    return found


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
        raise ReferenceAudioError(_NO_SAMPLES)
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
