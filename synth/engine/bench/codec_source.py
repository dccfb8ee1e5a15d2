"""Get a codec to measure, of a preset or of a checkpoint, and count its operations."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from synth.engine.bench.arguments import add_model_arguments
from synth.engine.bench.report import Options
from synth.engine.codec import CodecDecoder, CodecEncoder, load_decoder, load_encoder
from synth.engine.codec.precision import allow_tf32, decode_precision
from synth.engine.engine_config import named_dtype
from synth.engine.preset_shapes import Preset
from synth.engine.preset_weights import codec_half

PRECISIONS = ("float32", "bfloat16")  # of either half, on every device


@dataclass(frozen=True, slots=True)
class CodecSource:
    """Make codec halves of one origin: `checkpoint` where it is given, else the preset."""

    shape: Preset
    checkpoint: Path | None
    device: torch.device
    seed: int

    def encoder(self, precision: str) -> CodecEncoder:
        """Return the encoding half in this precision."""
        dtype = named_dtype(precision)
        if self.checkpoint:
            return load_encoder(self.checkpoint, self.device, dtype)
        return codec_half(CodecEncoder, self.shape, device=self.device, dtype=dtype, seed=self.seed)

    def decoder(self, precision: str) -> CodecDecoder:
        """Return the decoding half in this precision.

        Raises:
            InvalidSpecError: the device has no such precision.
        """
        chosen = decode_precision(precision, self.device)
        if self.checkpoint:
            return load_decoder(self.checkpoint, self.device, chosen.dtype, tf32=chosen.tf32)
        half = codec_half(
            CodecDecoder, self.shape, device=self.device, dtype=chosen.dtype, seed=self.seed
        )
        return allow_tf32(half) if chosen.tf32 else half


def add_source_arguments(parser: ArgumentParser) -> None:
    """Take the preset or a checkpoint whose codec is measured instead."""
    add_model_arguments(parser)
    parser.add_argument(
        "--checkpoint", type=Path, help="measure the codec of this folder and not the preset's"
    )


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
