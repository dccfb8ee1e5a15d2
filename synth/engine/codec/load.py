"""Build a codec half on a device in the numbers asked for, and keep the loaded ones for reuse."""

from __future__ import annotations

import importlib
import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

import torch
from torch import nn

from synth.engine.codec.codec_file import CodecFile, folded_weights, open_codec, stored_shapes
from synth.engine.codec.compiled import compile_decoder
from synth.engine.codec.config import DECODE_PRECISIONS, KERNEL_CHOICES
from synth.engine.codec.decoder import CodecDecoder
from synth.engine.codec.encoder import CodecEncoder
from synth.engine.codec.fingerprint import half_digest
from synth.engine.codec.layers import (
    KERNELS,
    NormedConv1d,
    NormedConvTranspose1d,
    ResidualUnit,
    Snake,
)
from synth.engine.codec.stages import VectorQuantizer
from synth.engine.errors import InvalidSpecError
from synth.engine.kernels import is_available

DTYPES = (torch.float32, torch.bfloat16)
Module = TypeVar("Module", bound=nn.Module)
Half = TypeVar("Half", CodecEncoder, CodecDecoder)
_Key = tuple[object, ...]


def wants_kernels(choice: str, device: torch.device | str) -> bool:
    """Return whether a half on this device is to use kernels: `auto` where they can be compiled.

    Raises:
        InvalidSpecError: the choice is none of `KERNEL_CHOICES`.
    """
    if choice not in KERNEL_CHOICES:
        raise InvalidSpecError(f"{choice!r} is not a setting for kernels; use auto or off.")
    device = torch.device(device)
    return choice == "auto" and device.type == "cuda" and is_available(device)


def use_kernels(half: Module) -> Module:
    """Let kernels do the Snakes and residual units of a half, and return it."""
    importlib.import_module(KERNELS)  # a triton that cannot be imported shows now
    for module in half.modules():
        if isinstance(module, Snake):
            module.inverse = (1 / (module.alpha.float() + 1e-9)).flatten()
        elif isinstance(module, ResidualUnit):
            module.has_kernels = True
    return half


def uses_kernels(half: nn.Module) -> bool:
    """Return whether a half's Snakes are kernels, or compiled code on a CPU."""
    if isinstance(half, CodecDecoder) and half.compiled is not None:
        return True
    snakes = [module for module in half.modules() if isinstance(module, Snake)]
    return any(snake.inverse is not None for snake in snakes)


@dataclass(frozen=True, slots=True)
class Precision:
    """Hold what `load_half` takes: the weights' dtype, and TF32 or not.

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


def load_half(
    half_type: type[Half],
    checkpoint_dir: Path,
    device: torch.device | str,
    dtype: torch.dtype = torch.float32,
    *,
    tf32: bool = False,
    kernels: str = "auto",
) -> Half:
    """Return a new half; in bfloat16 and TF32 codes change, so only on an explicit setting.

    Args:
        kernels: `auto` uses them where they can be compiled, on a CPU for the decoding half in
            float32; `off` nowhere.

    Raises:
        CheckpointError: the codec file is missing or not exactly a codec of this model.
        InvalidSpecError: `dtype` is not one that the codec runs in, or as for `allow_tf32`.
    """
    half = build_half(half_type, open_codec(checkpoint_dir), device, dtype)
    return prepare_half(half, tf32=tf32, kernels=kernels)


load_encoder, load_decoder = partial(load_half, CodecEncoder), partial(load_half, CodecDecoder)


def build_half(
    half_type: type[Half], opened: CodecFile, device: torch.device | str, dtype: torch.dtype
) -> Half:
    """Return a half with its weights on `device`; nothing of the other half leaves the file."""
    if dtype not in DTYPES:
        raise InvalidSpecError(f"The codec runs in float32 or bfloat16, not in {dtype}.")
    device = torch.device(device)
    with torch.device("meta"):
        half = half_type(opened.config)
    stored = {name: opened.tensors[name] for name in stored_shapes(half)}
    # A copy also where nothing changes: the file must not stay mapped under a running model.
    weights = {
        name: weight.to(device, dtype, copy=True) for name, weight in folded_weights(half, stored)
    }
    half.load_state_dict(weights, strict=True, assign=True)
    half.requires_grad_(False)
    return half.eval()


def prepare_half(half: Half, *, tf32: bool, kernels: str) -> Half:
    """Let a half that holds its weights compute as is asked, and return it.

    Raises:
        InvalidSpecError: its device or its weights cannot take TF32, or `kernels` is unknown.
    """
    if tf32:
        allow_tf32(half)
    if wants_kernels(kernels, half.device):
        return use_kernels(half)
    if kernels == "auto" and isinstance(half, CodecDecoder):
        compile_decoder(half)
    return half


class CodecCache:
    """Keep loaded halves by (weights, sizes, device, precision); the least recently used leaves."""

    def __init__(self, max_halves: int = 4) -> None:
        self._max_halves = max_halves
        self._halves: OrderedDict[_Key, CodecEncoder | CodecDecoder] = OrderedDict()
        self._lock = threading.Lock()

    def clear(self) -> None:
        """Let go of every half; those still in use elsewhere live on there."""
        with self._lock:
            self._halves.clear()

    def get(
        self,
        half_type: type[Half],
        checkpoint_dir: Path,
        device: torch.device | str,
        dtype: torch.dtype = torch.float32,
        *,
        tf32: bool = False,
        kernels: str = "auto",
    ) -> Half:
        """Return a half of this checkpoint; as for `load_half`."""
        opened = open_codec(checkpoint_dir)
        # One lock around the load too: two callers must not hold the weights twice.
        with self._lock:
            digest, where = half_digest(opened, half_type), torch.device(device)
            key = (half_type, digest, opened.config, where, dtype, tf32, kernels)
            half = self._halves.get(key)
            if half is None:
                half = build_half(half_type, opened, device, dtype)
                self._halves[key] = prepare_half(half, tf32=tf32, kernels=kernels)
            self._halves.move_to_end(key)
            while len(self._halves) > self._max_halves:
                self._halves.popitem(last=False)
            return cast("Half", half)


CODECS = CodecCache()  # this process's; empty until something is asked of it
