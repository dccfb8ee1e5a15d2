"""Get a codec to measure, of a preset or of a checkpoint, and count its operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from lab.bench.preset_weights import codec_half
from lab.bench.report import Options
from synth.engine.codec.codec_file import open_codec
from synth.engine.codec.decoder import CodecDecoder
from synth.engine.codec.encoder import CodecEncoder
from synth.engine.codec.load import (
    Half,
    Precision,
    build_half,
    decode_precision,
    encode_precision,
    prepare_half,
)
from synth.engine.presets import Preset

PRECISIONS = ("float32", "bfloat16")  # of either half, on every device


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
        return self._half(CodecEncoder, encode_precision(precision, self.device), kernels)

    def decoder(self, precision: str, *, kernels: str = "auto") -> CodecDecoder:
        """Return the decoding half in this precision; as `encoder`."""
        return self._half(CodecDecoder, decode_precision(precision, self.device), kernels)

    def _half(self, half_type: type[Half], chosen: Precision, kernels: str) -> Half:
        half = (
            build_half(half_type, open_codec(self.checkpoint), self.device, chosen.dtype)
            if self.checkpoint
            else codec_half(
                half_type, self.shape, device=self.device, dtype=chosen.dtype, seed=self.seed
            )
        )
        return prepare_half(half, tf32=chosen.tf32, kernels=kernels)


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
