"""Get a codec to measure, of a preset or of a checkpoint, and count its operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lab.bench.models.preset_weights import codec_half
from lab.bench.models.shapes import Preset
from lab.bench.report import Options
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.codec.load import (
    Half,
    half_dtype,
    load_half,
    prepare_half,
)


@dataclass(frozen=True, slots=True)
class CodecSource:
    """Make codec halves of one origin: `checkpoint` where it is given, else the preset."""

    shape: Preset
    checkpoint: Path | None
    device: torch.device
    seed: int

    def encoder(self, precision: str, *, kernels: str = "auto") -> CodecEncoder:
        """Return the encoding half in this precision, with kernels as `wants_kernels` says.

        Raises:
            InvalidSpecError: the device has no such precision.
        """
        return self._half(CodecEncoder, precision, kernels)

    def decoder(self, precision: str, *, kernels: str = "auto") -> CodecDecoder:
        """Return the decoding half in this precision; as `encoder`."""
        return self._half(CodecDecoder, precision, kernels)

    def _half(self, half_type: type[Half], precision: str, kernels: str) -> Half:
        if self.checkpoint:
            return load_half(half_type, self.checkpoint, self.device, precision, kernels=kernels)
        dtype = half_dtype(half_type, precision, self.device)
        half = codec_half(half_type, self.shape, device=self.device, dtype=dtype, seed=self.seed)
        return prepare_half(half, precision, kernels=kernels)


def source_name(options: Options) -> str:
    """Return what the figures are of."""
    if options["checkpoint"]:
        return f"codec of the checkpoint {options['checkpoint'].name}"
    return "codec with random weights"


def count_flops(work: Callable[[], object]) -> int:
    """Return the operations of convolutions and products that some work does, by doing it."""
    counter = FlopCounterMode(display=False)
    with counter:
        work()
    return int(counter.get_total_flops())


def weight_bytes(half: nn.Module) -> int:
    """Return the bytes of a half's weights."""
    return sum(weight.numel() * weight.element_size() for weight in half.parameters())
