"""Turn codes into audio: the half of the codec that every rendered segment goes through."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor, nn

from synth.engine.codec.chunks import MAX_PIECE_FRAMES, CompiledLayers, FrameRunner
from synth.engine.codec.config import CodecConfig
from synth.engine.codec.layers import group_by_length, pad_right
from synth.engine.codec.stages import DecodingQuantizer, WaveDecoder
from synth.engine.errors import InvalidSpecError

# A full-size decoder takes about 5 MB a frame. On a CPU the tensors of more frames leave the heap
# and are mapped anew at each operation: 64 at once take up to a third less time than 150 to 480.
_BATCH_FRAMES = {"cpu": 64}
MAX_BATCH_FRAMES = 2048  # 95 s of audio


def default_batch_frames(device_type: str) -> int:
    """Return how many frames at once suit a device of this type (`cpu`, `cuda`) with room."""
    return _BATCH_FRAMES.get(device_type, MAX_BATCH_FRAMES)


def frame_limit(max_batch_frames: int | None, device_type: str) -> int:
    """Return the limit that was asked for, or the default; ValueError where it is below 1."""
    if max_batch_frames is None:
        return default_batch_frames(device_type)
    if max_batch_frames < 1:
        raise ValueError(f"max_batch_frames is {max_batch_frames} and must be at least 1")
    return max_batch_frames


class CodecDecoder(nn.Module):
    """Hold the decoding half; its weights do not change after it is loaded."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.config = config
        self.quantizer = DecodingQuantizer(config)
        self.decoder = WaveDecoder(config)

    @property
    def device(self) -> torch.device:
        return self.quantizer.post_module.norm.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.quantizer.post_module.norm.weight.dtype

    @property
    def compiled(self) -> CompiledLayers | None:
        """Return what runs the layers in PyTorch's place, if anything does."""
        return self.runner.compiled

    @compiled.setter
    def compiled(self, layers: CompiledLayers) -> None:
        self.runner.compiled = layers

    @cached_property
    def runner(self) -> FrameRunner:
        """Return what runs the same weights frame by frame."""
        return FrameRunner(self.quantizer, self.decoder)

    def check_codes(self, codes: Sequence[Tensor]) -> None:
        """Raise InvalidSpecError unless each is integers [K, T], none negative.

        Waits for the device once at most, where codes are on one.
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
        if self.compiled is not None:  # on the host, without an operation of PyTorch
            arrays = [matrix.cpu().numpy() for matrix in codes if matrix.numel()]
            has_negative = any(array.min() < 0 for array in arrays)
        else:
            least = [matrix.min().to(torch.int64) for matrix in codes if matrix.numel()]
            together = [number.to(least[0].device) for number in least]
            has_negative = bool(together) and bool(torch.stack(together).min() < 0)
        if has_negative:
            raise InvalidSpecError("Codes must not be negative; these hold one that is.")

    @torch.inference_mode()
    def decode(
        self, codes: Sequence[Tensor], *, max_batch_frames: int | None = None
    ) -> list[Tensor]:
        """Return the audio of code matrices of any lengths; each is decoded as if it were alone.

        Args:
            codes: integer tensors [K, T] on any device, left as they are. A code above its
                codebook means the last row.
            max_batch_frames: padded frames that go through the model at once, at least 1; None
                means `default_batch_frames`. Of a longer matrix one part goes after the other,
                which changes no more than rounding.

        Returns:
            For each matrix float32 [hop_length * T] on the model's device; empty for no frames.

        Raises:
            InvalidSpecError: a matrix is not of integers, has another number of rows than the
                codec has codebooks, or holds a negative code.
            ValueError: `max_batch_frames` is below 1.
        """
        self.check_codes(codes)
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
        moved = [matrix.to(self.device, torch.int64) for matrix in codes]
        batch = pad_right(moved, longest)
        if longest > limit:  # a matrix on its own, see `group_by_length`
            piece = min(limit, MAX_PIECE_FRAMES)
            samples, _ = self.runner.run(batch, self.runner.initial_state(), piece)
            return samples.float().unbind()
        wave: Tensor = self.decoder(self.quantizer(batch))
        return wave[:, 0].float().unbind()
