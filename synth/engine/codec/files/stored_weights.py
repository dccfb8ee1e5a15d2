"""Say which tensors a codec file must hold for a half, and fold its weight norms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from synth.engine.codec.layers import NormedConv1d, NormedConvTranspose1d, WeightNorm
from synth.engine.errors import CheckpointError

# The two spellings of one thing: weight = norm * direction / |direction|.
_SPELLINGS: dict[WeightNorm, tuple[str, str]] = {
    "parametrized": ("parametrizations.weight.original0", "parametrizations.weight.original1"),
    "g_and_v": ("weight_g", "weight_v"),
}


def stored_shapes(half: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of each tensor that a file holds for `half`, norms unfolded."""
    normed = _normed_weights(half)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, parameter in half.named_parameters():
        if name not in normed:
            shapes[name] = tuple(parameter.shape)
            continue
        norm, direction = normed[name]
        shapes[norm] = (parameter.shape[0], *([1] * (parameter.dim() - 1)))
        shapes[direction] = tuple(parameter.shape)
    return shapes


def folded_weights(half: nn.Module, stored: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield each parameter of `half` in float32 on the CPU, from the tensors of `stored_shapes`.

    Raises:
        CheckpointError: a tensor holds a value that is not finite, or a direction of length zero.
    """
    normed = _normed_weights(half)
    for name, _ in half.named_parameters():
        if name not in normed:
            yield name, _finite(stored, name)
            continue
        norm_name, direction_name = normed[name]
        norm, direction = _finite(stored, norm_name), _finite(stored, direction_name)
        # Over all axes but 0, for transposed convolutions too, where axis 0 is the input channel.
        length = torch.linalg.vector_norm(direction.flatten(1), dim=1).view_as(norm)
        if bool((length == 0).any()):
            raise CheckpointError(f"{direction_name} in the codec file holds a filter of zeros.")
        yield name, direction * (norm / length)


def _normed_weights(half: nn.Module) -> dict[str, tuple[str, str]]:
    """Return, for each weight with a norm, the names of its norm and its direction in a file."""
    return {
        f"{name}.weight": (f"{name}.{spelling[0]}", f"{name}.{spelling[1]}")
        for name, module in half.named_modules()
        if isinstance(module, NormedConv1d | NormedConvTranspose1d)
        and (spelling := _SPELLINGS.get(module.weight_norm))
    }


def _finite(stored: Mapping[str, Tensor], name: str) -> Tensor:
    tensor = stored[name].float()
    if not bool(tensor.isfinite().all()):
        raise CheckpointError(f"{name} in the codec file holds values that are not finite.")
    return tensor
