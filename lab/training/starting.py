"""Continue from a checkpoint: keep what no engine needs beside it, and take its weights over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor, nn

from lab.training.codebooks import Book
from lab.training.latents import LatentSpace
from lab.training.lm_network import LM_FILE, disk_name
from lab.training.run_folder import RunFolderError
from lab.training.stages.quantizer import Quantizer
from synth.engine.codec.codec_file import folded_weights, open_codec, stored_shapes
from synth.engine.codec.halves import CodecDecoder, CodecEncoder

SPACE_FILE = "latents.npz"
_TENSORS = ("directions", "mean", "basis")


def write_space(folder: Path, space: LatentSpace) -> None:
    """Write what latents mean beside a checkpoint; its codebooks are in the codec's file."""
    tensors = {name: getattr(space, name).numpy() for name in _TENSORS}
    np.savez(folder / SPACE_FILE, states=np.array(space.states), **tensors)


def read_quantizer(folder: Path) -> Quantizer:
    """Return a checkpoint's latent space and codebooks.

    Raises:
        RunFolderError: it was exported without the space.
    """
    path = folder / SPACE_FILE
    if not path.is_file():
        raise RunFolderError(f"{path} is missing, so {folder} cannot be trained further.")
    with np.load(path) as stored:
        tensors = {name: torch.from_numpy(stored[name]) for name in _TENSORS}
        space = LatentSpace(states=tuple(stored["states"].tolist()), **tensors)
    weights = codec_weights(folder, CodecDecoder)
    prefixes = ["quantizer.semantic_quantizer.quantizers.0"]
    while f"{_residual(len(prefixes) - 1)}.codebook.weight" in weights:
        prefixes.append(_residual(len(prefixes) - 1))
    books = [
        Book(
            rows=weights[f"{prefix}.codebook.weight"],
            in_weight=weights[f"{prefix}.in_proj.weight"][..., 0],
            in_bias=weights[f"{prefix}.in_proj.bias"],
            out_weight=weights[f"{prefix}.out_proj.weight"][..., 0],
            out_bias=weights[f"{prefix}.out_proj.bias"],
        )
        for prefix in prefixes
    ]
    return Quantizer(space, books)


def _residual(index: int) -> str:
    return f"quantizer.quantizer.quantizers.{index}"


def codec_weights(folder: Path, kind: type[CodecEncoder] | type[CodecDecoder]) -> dict[str, Tensor]:
    """Return the weights of one half of a checkpoint's codec, float32."""
    opened = open_codec(folder)
    with torch.device("meta"):
        half = kind(opened.config)
    stored = {name: opened.tensors[name] for name in stored_shapes(half)}
    return dict(folded_weights(half, stored))


def lm_weights(folder: Path, network: nn.Module) -> dict[str, Tensor]:
    """Return a checkpoint's language model, float32, by the names in `network`."""
    with safe_open(str(folder / LM_FILE), "pt") as stored:
        on_disk = set(stored.keys())
        return {
            name: stored.get_tensor(disk_name(name)).float()
            for name, _ in network.named_parameters()
            if disk_name(name) in on_disk
        }


@torch.no_grad()
def take_over(network: nn.Module, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Give a network a checkpoint's weights.

    Raises:
        RunFolderError: a size is another one than the plan's.
    """
    for name, parameter in network.named_parameters():
        given = weights.get(name)
        if given is None or given.shape != parameter.shape:
            shape = None if given is None else tuple(given.shape)
            raise RunFolderError(
                f"{folder} has other sizes than this plan: {name} is {shape} there and "
                f"{tuple(parameter.shape)} here."
            )
        parameter.copy_(given)
