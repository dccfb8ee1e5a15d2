"""Turn audio into codes: the half of the codec that a voice's reference clip goes through."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from synth.engine.codec.batching import group_by_length, pad_right
from synth.engine.codec.config import CodecConfig
from synth.engine.codec.layers import CausalConv1d, ConvNeXtBlock
from synth.engine.codec.quantizer import residual_stack, semantic_stack
from synth.engine.codec.residual import Snake, residual_units
from synth.engine.codec.transformer import WindowedTransformer
from synth.engine.errors import ReferenceAudioError

NOT_FINITE = "The reference audio holds values that are not finite; export the clip again."
MAX_BATCH_SAMPLES = 1 << 22  # 95 s at 44.1 kHz; a full-size encoder takes about 1 kB a sample


class EncoderBlock(nn.Module):
    """Refine at one width, then double the width and shorten by `stride`."""

    def __init__(self, dim: int, stride: int, *tail: nn.Module) -> None:
        super().__init__()
        widen = CausalConv1d(dim, 2 * dim, 2 * stride, stride=stride)
        self.block = nn.Sequential(*residual_units(dim), Snake(dim), widen, *tail)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, dim, T] to [B, 2 dim, T / stride]."""
        y: Tensor = self.block(x)
        return y


class WaveEncoder(nn.Module):
    """Map samples to latents, four for each frame of codes at full size."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        dim = config.encoder_dim
        blocks: list[nn.Module] = [CausalConv1d(1, dim, 7)]
        last = len(config.encoder_strides) - 1
        for index, stride in enumerate(config.encoder_strides):
            tail = [WindowedTransformer(config.encoder_transformer)] if index == last else []
            blocks.append(EncoderBlock(dim, stride, *tail))
            dim *= 2
        self.block = nn.Sequential(*blocks, Snake(dim), CausalConv1d(dim, config.latent_dim, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, 1, N] to [B, latent_dim, N / prod(strides)]."""
        y: Tensor = self.block(x)
        return y


class EncodingQuantizer(nn.Module):
    """Shorten latents to the frame rate, put them in context, and choose the codes."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        dim = config.latent_dim
        self.downsample = nn.Sequential(
            *(
                nn.Sequential(
                    CausalConv1d(dim, dim, factor, stride=factor, weight_norm=None),
                    ConvNeXtBlock(dim),
                )
                for factor in config.downsample_factors
            )
        )
        self.pre_module = WindowedTransformer(config.pre_module)
        self.semantic_quantizer = semantic_stack(config)
        self.quantizer = residual_stack(config)

    def forward(self, latents: Tensor) -> Tensor:
        """Map [B, latent_dim, S] to codes, int64 [B, K, T]."""
        z = self.pre_module(self.downsample(latents))
        semantic_codes, semantic = self.semantic_quantizer.encode(z)
        residual_codes, _ = self.quantizer.encode(z - semantic)
        return torch.cat((semantic_codes, residual_codes), dim=1)


class CodecEncoder(nn.Module):
    """Hold the encoding half; its weights do not change after it is loaded."""

    def __init__(self, config: CodecConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = WaveEncoder(config)
        self.quantizer = EncodingQuantizer(config)

    @property
    def device(self) -> torch.device:
        """Return the device that the weights are on."""
        return self.quantizer.pre_module.norm.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype of the weights."""
        return self.quantizer.pre_module.norm.weight.dtype

    @torch.inference_mode()
    def encode(
        self, waveforms: Sequence[Tensor], *, max_batch_samples: int = MAX_BATCH_SAMPLES
    ) -> list[Tensor]:
        """Return the codes of mono waveforms at the codec's sample rate.

        Args:
            waveforms: float tensors [N] of any lengths above 0, on any device.
            max_batch_samples: padded samples that go through the model at once.

        Returns:
            For each waveform int64 [K, ceil(N / hop_length)] on the model's device.

        Raises:
            ReferenceAudioError: a waveform is empty, not one axis of floats, or not finite.
        """
        for waveform in waveforms:
            _check_waveform(waveform)
        finite = [waveform.isfinite().all() for waveform in waveforms]
        lengths = [waveform.shape[0] for waveform in waveforms]
        codes: list[Tensor] = [torch.empty(0)] * len(lengths)
        for group in group_by_length(lengths, max_batch_samples):
            batch = self._encode_batch([waveforms[index] for index in group])
            for row, index in enumerate(group):
                codes[index] = batch[row, :, : -(-lengths[index] // self.config.hop_length)]
        # Asked for behind the work, so that a device is waited for once and not on the way.
        if not all(finite):
            raise ReferenceAudioError(NOT_FINITE)
        return codes

    def _encode_batch(self, waveforms: Sequence[Tensor]) -> Tensor:
        moved = [waveform.to(self.device, self.dtype) for waveform in waveforms]
        longest = max(waveform.shape[0] for waveform in moved)
        padded = pad_right(moved, longest + -longest % self.config.hop_length)
        y: Tensor = self.quantizer(self.encoder(padded[:, None]))
        return y


def _check_waveform(waveform: Tensor) -> None:
    if waveform.dim() != 1 or not waveform.is_floating_point():
        raise ReferenceAudioError(
            f"A waveform to encode must be one axis of floats, not {waveform.dtype} of shape "
            f"{tuple(waveform.shape)}."
        )
    if waveform.shape[0] == 0:
        raise ReferenceAudioError("The reference audio holds no samples; use a clip with speech.")
