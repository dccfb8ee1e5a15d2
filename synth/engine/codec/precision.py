"""Name the numbers that a codec computes in, and measure what the coarser ones cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from synth.engine.codec.config import DECODE_PRECISIONS
from synth.engine.codec.decoder import CodecDecoder
from synth.engine.codec.layers import NormedConv1d, NormedConvTranspose1d
from synth.engine.codec.quantizer import VectorQuantizer
from synth.engine.errors import InvalidSpecError

Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class Precision:
    """Hold what `load_encoder` and `load_decoder` take: the weights' dtype, and TF32 or not.

    With TF32 the convolutions, 97 % of the work at full size, round what they multiply to ten bits
    and add in float32; the linear layers stay in float32. PyTorch has a switch for these too, but
    one that all threads share: codes of a voice would depend on what else is decoded meanwhile.
    """

    dtype: torch.dtype
    tf32: bool


def decode_precision(name: str, device: torch.device | str) -> Precision:
    """Return the decoder's precision of this name, one of `DECODE_PRECISIONS`.

    Raises:
        InvalidSpecError: there is none of this name, or `device` cannot compute in it.
    """
    return _precision("decoder", name, torch.device(device))


def encode_precision(name: str, device: torch.device | str) -> Precision:
    """Return the encoder's precision of this name; codes depend on it. As `decode_precision`."""
    return _precision("encoder", name, torch.device(device))


def allow_tf32(half: Module) -> Module:
    """Let a half's convolutions take TF32, and return it.

    Those of the quantizers stay as they are: they cost nothing, and near ties between codes are
    decided by them.

    Raises:
        InvalidSpecError: its weights are not float32 on a CUDA device.
    """
    weight = next(half.parameters())
    _check_tf32(weight.device)
    if weight.dtype is not torch.float32:
        raise InvalidSpecError(f"TF32 is for float32 weights; these are {weight.dtype}.")
    quantizers = [module for module in half.modules() if isinstance(module, VectorQuantizer)]
    exact = {module for quantizer in quantizers for module in quantizer.modules()}
    for module in half.modules():
        if isinstance(module, (NormedConv1d, NormedConvTranspose1d)) and module not in exact:
            module.tf32 = True
    return half


@dataclass(frozen=True, slots=True)
class DecodeError:
    """Hold how far one decoder's audio is from another's.

    `snr_db` is the power of the audio over that of the difference, infinite where there is none;
    `max_abs` the largest difference of a sample, where full scale is 1.
    """

    snr_db: float
    max_abs: float


def decode_error(exact: CodecDecoder, other: CodecDecoder, codes: Sequence[Tensor]) -> DecodeError:
    """Measure `other` against `exact` over the audio of all code matrices together.

    Raises:
        InvalidSpecError: there are no frames, or codes are refused by a decoder.
    """
    if not sum(matrix.shape[-1] for matrix in codes):
        raise InvalidSpecError("An error is measured over at least one frame of codes.")
    expected = torch.cat(exact.decode(codes)).double()
    difference = torch.cat(other.decode(codes)).to(expected.device).double() - expected
    signal, noise = expected.square().sum().item(), difference.square().sum().item()
    ratio = signal / noise if noise else math.inf
    snr_db = 10 * math.log10(ratio) if ratio else -math.inf
    return DecodeError(snr_db, difference.abs().max().item())


def _precision(half: str, name: str, device: torch.device) -> Precision:
    if name not in DECODE_PRECISIONS:
        raise InvalidSpecError(
            f"The codec's {half} runs in {', '.join(DECODE_PRECISIONS)}, not in {name!r}."
        )
    if name == "tf32":
        _check_tf32(device)
    return Precision(torch.bfloat16 if name == "bfloat16" else torch.float32, tf32=name == "tf32")


def _check_tf32(device: torch.device) -> None:
    if device.type != "cuda":
        raise InvalidSpecError(
            f"TF32 needs a CUDA device, but the codec runs on {device.type}; use float32, "
            "which is exact, or bfloat16."
        )
