"""Open a checkpoint's codec file, `codec.safetensors` or `codec.pth`, and hold it to its sizes."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from synth.engine.codec.config import CodecConfig, config_from_shapes
from synth.engine.codec.decoder import CodecDecoder
from synth.engine.codec.encoder import CodecEncoder
from synth.engine.codec.files.config_file import apply_config_file
from synth.engine.codec.files.conversion_record import check_source_unchanged
from synth.engine.codec.files.stored_weights import stored_shapes
from synth.engine.errors import CheckpointError

PICKLE_NAME = "codec.pth"
SAFETENSORS_NAME = "codec.safetensors"
WEIGHT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
NAMED_AT_MOST = 8  # names that one message lists

# Rotary tables and masks follow from the sizes; some exports saved them beside the weights.
_DERIVED = re.compile(
    r"(encoder\.block\.\d+\.block\.5|quantizer\.(pre|post)_module)\.(freqs_cis|causal_mask)"
)


@dataclass(frozen=True, slots=True)
class CodecFile:
    """Hold an opened and checked codec: names, shapes and sizes are right, no value is read yet.

    `tensors` are backed by the mapped file, on the CPU in the file's dtypes: copy what is kept.
    `identity` is the file's path, size and time of change (ns), taken before it was opened.
    """

    path: Path
    identity: str
    config: CodecConfig
    tensors: Mapping[str, Tensor]


def codec_path(checkpoint_dir: Path) -> Path:
    """Return the codec file to read: the converted one where it exists, else `codec.pth`.

    Raises:
        CheckpointError: there is neither, or the converted one was made from another `codec.pth`.
    """
    converted, original = checkpoint_dir / SAFETENSORS_NAME, checkpoint_dir / PICKLE_NAME
    if not converted.is_file():
        if not original.is_file():
            raise CheckpointError(
                f"{checkpoint_dir} contains neither {SAFETENSORS_NAME} nor {PICKLE_NAME}; "
                "set TTS_CHECKPOINT to the folder of a complete checkpoint."
            )
        return original
    if original.is_file():
        check_source_unchanged(converted, original)
    return converted


def open_codec(checkpoint_dir: Path) -> CodecFile:
    """Open the codec of a checkpoint folder.

    Raises:
        CheckpointError: no file, one that cannot be read, or one whose tensors are not exactly
            those of a codec; the text names them.
    """
    return open_codec_file(codec_path(checkpoint_dir))


def open_codec_file(path: Path) -> CodecFile:
    """Open this codec file, with the `codec_config.json` beside it if there is one."""
    try:
        found = path.stat()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from error
    identity = f"{path.resolve()}|{found.st_size}|{found.st_mtime_ns}"
    tensors = read_safetensors(path) if path.suffix == ".safetensors" else read_pickle(path)
    tensors = {name: tensor for name, tensor in tensors.items() if not _DERIVED.fullmatch(name)}
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    config = checked_config(path, shapes)
    for name, tensor in tensors.items():
        if tensor.dtype not in WEIGHT_DTYPES:
            raise CheckpointError(f"{path}: {name} is {tensor.dtype}, which is not a float type.")
    return CodecFile(path, identity, config, tensors)


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Map a safetensors file; the values are read when they are used."""
    try:
        with safe_open(path, "pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  # no mapping
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read as safetensors: {error}.") from error


def read_pickle(path: Path) -> dict[str, Tensor]:
    """Map a torch pickle that holds weights only, and unwrap the accepted variants.

    These are a flat state dict, one under the key `state_dict`, and either with `generator.` in
    its names; one such name drops all names without.
    """
    try:
        # Only the zip layout of newer files can be mapped.
        loaded: Any = torch.load(
            path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
        )
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            f"{path} cannot be read as a torch file of weights only: {_first_line(error)}."
        ) from error
    if isinstance(loaded, Mapping) and isinstance(loaded.get("state_dict"), Mapping):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, Mapping) or not loaded:
        raise CheckpointError(
            f"{path} does not contain a state dict; download the checkpoint again."
        )
    if any("generator" in str(name) for name in loaded):
        loaded = {
            str(name).replace("generator.", ""): value
            for name, value in loaded.items()
            if "generator." in str(name)
        }
    strays = [str(name) for name, value in loaded.items() if not isinstance(value, Tensor)]
    if strays:
        raise CheckpointError(
            f"{path} contains {_listed(strays)}, which is not a tensor; a flat state dict is "
            "needed."
        )
    return {str(name): value for name, value in loaded.items()}


def checked_config(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> CodecConfig:
    """Return the sizes that these names and shapes of `path` show, once they all fit.

    Raises:
        CheckpointError: a tensor is missing, unknown or misshapen; the text names it.
    """
    config = apply_config_file(config_from_shapes(shapes), path.parent)
    problems = _misfits(shapes, expected_shapes(config))
    if problems:
        raise CheckpointError(f"{path} is not a codec of this model: {'; '.join(problems)}.")
    return config


@lru_cache(maxsize=4)
def expected_shapes(config: CodecConfig) -> Mapping[str, tuple[int, ...]]:
    """Return the name and shape of every tensor that a codec of these sizes has in its file."""
    with torch.device("meta"):
        halves: tuple[nn.Module, ...] = (CodecEncoder(config), CodecDecoder(config))
    shapes = {name: shape for half in halves for name, shape in stored_shapes(half).items()}
    return MappingProxyType(shapes)


def _misfits(
    shapes: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]]
) -> list[str]:
    wrong = [
        f"{name} is {shapes[name]} instead of {shape}"
        for name, shape in expected.items()
        if name in shapes and shapes[name] != shape
    ]
    return [
        f"{title} {_listed(names)}"
        for title, names in (
            ("it lacks", sorted(expected.keys() - shapes.keys())),
            ("it has the unknown", sorted(shapes.keys() - expected.keys())),
            ("of another shape:", wrong),
        )
        if names
    ]


def _listed(names: list[str]) -> str:
    more = len(names) - NAMED_AT_MOST
    return ", ".join(names[:NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
