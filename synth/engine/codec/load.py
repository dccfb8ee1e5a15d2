"""Build a codec half on a device, in the numbers and with the kernels that are asked for."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from synth.engine.codec.codec_file import folded_weights, open_codec, stored_shapes
from synth.engine.codec.compiled import compile_decoder
from synth.engine.codec.config import KERNEL_CHOICES, PRECISIONS
from synth.engine.codec.fused import OPERANDS, FusedWaves
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.codec.layers import (
    KERNELS,
    Normed,
    ResidualUnit,
    Snake,
)
from synth.engine.codec.stages import VectorQuantizer
from synth.engine.errors import InvalidSpecError
from synth.engine.kernels import why_unavailable

Module = TypeVar("Module", bound=nn.Module)
Half = TypeVar("Half", CodecEncoder, CodecDecoder)
_TF32_SINCE = (8, 0)  # compute capability


def wants_kernels(choice: str, device: torch.device | str) -> bool:
    """Return whether a half on this device is to use kernels: `auto` where they can be compiled.

    Raises:
        InvalidSpecError: the choice is none of `KERNEL_CHOICES`.
    """
    if choice not in KERNEL_CHOICES:
        raise InvalidSpecError(f"{choice!r} is not a setting for kernels; use auto or off.")
    device = torch.device(device)
    return choice == "auto" and device.type == "cuda" and why_unavailable(device) is None


def use_kernels(half: Module, operands: torch.dtype | None = None) -> Module:
    """Let kernels do the Snakes and residual units of a half, and return it.

    Args:
        operands: of a decoder's convolutions, which one kernel then does with their Snakes, and
            nothing else can run its weights any more; None leaves them to PyTorch.
    """
    importlib.import_module(KERNELS)  # a triton that cannot be imported shows now
    if isinstance(half, CodecDecoder) and operands is not None:
        half.decoder.fused = FusedWaves(half.decoder, operands)
        return half
    for module in half.modules():
        if isinstance(module, Snake):
            module.inverse = (1 / (module.alpha.float() + 1e-9)).flatten()
        elif isinstance(module, ResidualUnit):
            module.has_kernels = True
    return half


def uses_kernels(half: nn.Module) -> bool:
    """Return whether a half's Snakes are kernels, or compiled code on a CPU."""
    if isinstance(half, CodecDecoder) and half.has_own_layers:
        return True
    return any(isinstance(each, Snake) and each.inverse is not None for each in half.modules())


def decoding_precision(name: str, device: torch.device | str) -> str:
    """Return the precision that a setting stands for, for a decoder on this device.

    `auto` is `tf32` where a CUDA device has it, with an error some 56 dB below the sound, else
    `float32`. Only decoding: an encoder's codes would be others.
    """
    if name != "auto":
        return name
    device = torch.device(device)
    has_tf32 = device.type == "cuda" and torch.cuda.get_device_capability(device) >= _TF32_SINCE
    return "tf32" if has_tf32 else "float32"


def half_dtype(
    half_type: type[CodecEncoder | CodecDecoder], precision: str, device: torch.device | str
) -> torch.dtype:
    """Return the dtype of a half's weights in a precision, one of `PRECISIONS`.

    With tf32 the convolutions, 97 % of the work at full size, round what they multiply to ten bits
    and add in float32; the linear layers stay in float32. Where a decoder has its own kernel, the
    numbers of ten bits are float16, and those beyond 65504 become it. PyTorch has a switch for
    linear layers too, but one that all threads share: codes of a voice would depend on what else
    is decoded meanwhile.

    Raises:
        InvalidSpecError: there is none of this name, or `device` cannot compute in it.
    """
    if precision not in PRECISIONS:
        half = "encoder" if half_type is CodecEncoder else "decoder"
        raise InvalidSpecError(
            f"The codec's {half} runs in {', '.join(PRECISIONS)}, not in {precision!r}."
        )
    if precision == "tf32":
        _check_tf32(torch.device(device))
    return torch.bfloat16 if precision == "bfloat16" else torch.float32


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
        if isinstance(module, Normed) and module not in exact:
            module.tf32 = True
    return half


def _check_tf32(device: torch.device) -> None:
    if device.type != "cuda":
        raise InvalidSpecError(
            f"TF32 needs a CUDA device, but the codec runs on {device.type}; use float32, "
            "which is exact, or bfloat16."
        )


def load_half(
    half_type: type[Half],
    checkpoint_dir: Path,
    device: torch.device | str,
    precision: str = "float32",
    *,
    kernels: str = "auto",
) -> Half:
    """Return a half with its weights on `device`; nothing of the other half leaves the file.

    Args:
        precision: one of `PRECISIONS`; codes depend on it, so only on an explicit setting.
        kernels: `auto` uses them where they can be compiled, on a CPU for the decoding half in
            float32; `off` nowhere.

    Raises:
        CheckpointError: the codec file is missing or not exactly a codec of this model.
        InvalidSpecError: as for `half_dtype`, or `kernels` is unknown.
    """
    dtype = half_dtype(half_type, precision, device)
    opened = open_codec(checkpoint_dir)
    with torch.device("meta"):
        half = half_type(opened.config)
    stored = {name: opened.tensors[name] for name in stored_shapes(half)}
    # A copy also where nothing changes: the file must not stay mapped under a running model.
    weights = {
        name: weight.to(device, dtype, copy=True) for name, weight in folded_weights(half, stored)
    }
    half.load_state_dict(weights, strict=True, assign=True)
    del weights  # what is laid out anew below must not be held twice
    half.requires_grad_(False)
    return prepare_half(half.eval(), precision, kernels=kernels)


load_encoder, load_decoder = partial(load_half, CodecEncoder), partial(load_half, CodecDecoder)


def prepare_half(half: Half, precision: str, *, kernels: str) -> Half:
    """Let a half that holds its weights compute as is asked; errors as for `load_half`."""
    if precision == "tf32":
        allow_tf32(half)
    if wants_kernels(kernels, half.device):
        return use_kernels(half, OPERANDS.get(precision))
    if kernels == "auto" and isinstance(half, CodecDecoder):
        compile_decoder(half)
    return half
