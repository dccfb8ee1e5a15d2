"""Continue from a checkpoint: keep what no engine needs beside it, and take its weights over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor, nn

from lab.training.codebooks import Book
from lab.training.latents import LatentSpace
from lab.training.lm_network import LM_FILE
from lab.training.run_folder import RunFolderError
from lab.training.stages.quantizer import Quantizer
from synth.engine.codec.codec_file import folded_weights, open_codec, stored_shapes
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.model.dual_ar import DualAR

SPACE_FILE = "latents.npz"
_TENSORS = ("directions", "mean", "basis")
_LAYER = {part: re.compile(rf"{part}\.layers\.\d+\.") for part in ("slow", "fast")}
_INTO_STREAM = ("wo.weight", "w2.weight")  # what a layer adds goes through these
_BOOKS = "slow.codebook_embeddings.weight"


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


@torch.no_grad()
def take_over_lm(lm: DualAR, folder: Path) -> None:
    """Give a language model a checkpoint's weights; it may have more layers, and more books.

    Added layers stand around the checkpoint's, so that the middle ones stay in the middle, and
    begin without an effect. Rows of added books stay as they are.

    Raises:
        RunFolderError: another size differs.
    """
    with safe_open(str(folder / LM_FILE), "pt") as stored:
        weights = {
            _network_name(name): stored.get_tensor(name).float()
            for name in stored.keys()  # noqa: SIM118  # it is no dictionary
        }
    for part, blocks in (("slow", lm.slow.blocks), ("fast", lm.fast.blocks)):
        known = {name: weights.pop(name) for name in list(weights) if _LAYER[part].match(name)}
        count = 1 + max(_layer_number(name) for name in known)
        before = (len(blocks) - count) // 2
        if before < 0:
            raise RunFolderError(f"{folder} has {count} layers, this plan {len(blocks)}.")
        for name, weight in known.items():
            number = _layer_number(name)
            weights[name.replace(f".{number}.", f".{number + before}.", 1)] = weight
    whole = {name: parameter.clone() for name, parameter in lm.named_parameters()}
    for name, parameter in whole.items():
        given = weights.get(name)
        if given is None and name.endswith(_INTO_STREAM):
            parameter.zero_()
        elif given is not None and name == _BOOKS and len(given) < len(parameter):
            parameter[: len(given)] = given
        elif given is not None:
            whole[name] = given
    take_over(lm, whole, folder)


def _network_name(on_disk: str) -> str:
    """Return the name in `DualAR` of a tensor of the file; `disk_name` is the way back."""
    rest = on_disk.removeprefix("audio_decoder.")
    if rest == on_disk:
        return f"slow.{on_disk.removeprefix('text_model.model.')}"
    return f"{'slow' if rest.startswith('codebook_embeddings.') else 'fast'}.{rest}"


def _layer_number(name: str) -> int:
    return int(name.split(".")[2])


@torch.no_grad()
def take_over(network: nn.Module, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Give a network a checkpoint's weights; books that were added stay as the run has them.

    Raises:
        RunFolderError: a size is another one than the plan's.
    """
    for name, parameter in network.named_parameters():
        given = weights.get(name)
        if given is None and ".quantizers." in name:
            continue
        if given is None or given.shape != parameter.shape:
            shape = None if given is None else tuple(given.shape)
            raise RunFolderError(
                f"{folder} has other sizes than this plan: {name} is {shape} there and "
                f"{tuple(parameter.shape)} here."
            )
        parameter.copy_(given)
