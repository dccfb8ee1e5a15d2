"""Let kernels do what a codec half's convolutions leave, where the device has them."""

from __future__ import annotations

import importlib
from typing import TypeVar

import torch
from torch import nn

from synth.engine.codec.config import KERNEL_CHOICES
from synth.engine.codec.decoder import CodecDecoder
from synth.engine.codec.residual import KERNELS, ResidualUnit, Snake
from synth.engine.errors import InvalidSpecError
from synth.engine.kernels import is_available

Module = TypeVar("Module", bound=nn.Module)


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
