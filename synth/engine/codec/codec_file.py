"""Open, check, name by its content and convert the codec file of a checkpoint."""

from __future__ import annotations

import hashlib
import json
import pickle
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from synth.engine.codec.config import CodecConfig, apply_config_file, config_from_shapes
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.codec.layers import Normed, WeightNorm
from synth.engine.errors import CheckpointError
from synth.engine.loading.weights import (
    file_identity,
    file_sha256,
    remembered_digest,
    replace_file,
)

PICKLE_NAME = "codec.pth"
SAFETENSORS_NAME = "codec.safetensors"
WEIGHT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
NAMED_AT_MOST = 8  # names that one message lists

# Rotary tables and masks follow from the sizes; some exports saved them beside the weights.
_DERIVED = re.compile(
    r"(encoder\.block\.\d+\.block\.5|quantizer\.(pre|post)_module)\.(freqs_cis|causal_mask)"
)
# The two spellings of one thing: weight = norm * direction / |direction|.
_SPELLINGS: dict[WeightNorm, tuple[str, str]] = {
    "parametrized": ("parametrizations.weight.original0", "parametrizations.weight.original1"),
    "g_and_v": ("weight_g", "weight_v"),
}
SOURCE_DIGEST_KEY = "source_sha256"  # in the metadata of the safetensors file


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


def open_codec(checkpoint_dir: Path) -> CodecFile:
    """Open the codec of a checkpoint folder: the converted one where it exists, else `codec.pth`.

    Raises:
        CheckpointError: no file, one that cannot be read, one that was made from another
            `codec.pth`, or one whose tensors are not exactly those of a codec; the text names them.
    """
    converted, original = checkpoint_dir / SAFETENSORS_NAME, checkpoint_dir / PICKLE_NAME
    if not converted.is_file():
        if not original.is_file():
            raise CheckpointError(
                f"{checkpoint_dir} contains neither {SAFETENSORS_NAME} nor {PICKLE_NAME}; "
                "set TTS_CHECKPOINT to the folder of a complete checkpoint."
            )
        return open_codec_file(original)
    if original.is_file():
        check_source_unchanged(converted, original)
    return open_codec_file(converted)


def open_codec_file(path: Path) -> CodecFile:
    """Open this codec file, with the `codec_config.json` beside it if there is one."""
    identity = file_identity(path)
    if path.suffix == ".safetensors":
        with open_safetensors(path) as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  # no mapping
    else:
        tensors = read_pickle(path)
    tensors = {name: tensor for name, tensor in tensors.items() if not _DERIVED.fullmatch(name)}
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    config = checked_config(path, shapes)
    for name, tensor in tensors.items():
        if tensor.dtype not in WEIGHT_DTYPES:
            raise CheckpointError(f"{path}: {name} is {tensor.dtype}, which is not a float type.")
    return CodecFile(path, identity, config, tensors)


@contextmanager
def open_safetensors(path: Path) -> Iterator[Any]:
    """Map a safetensors file; the values are read when they are used."""
    try:
        with safe_open(path, "pt") as opened:
            yield opened
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
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise CheckpointError(
            f"{path} cannot be read as a torch file of weights only: {reason}."
        ) from error
    if isinstance(loaded, Mapping) and isinstance(loaded.get("state_dict"), Mapping):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, Mapping) or not loaded:
        raise CheckpointError(
            f"{path} does not contain a state dict; download the checkpoint again."
        )
    if any("generator" in str(name) for name in loaded):
        named = ((str(name), value) for name, value in loaded.items())
        loaded = {n.replace("generator.", ""): value for n, value in named if "generator." in n}
    strays = [str(name) for name, value in loaded.items() if not isinstance(value, Tensor)]
    if strays:
        raise CheckpointError(
            f"{path} contains {_join_names(strays)}, which is not a tensor; a flat state dict is "
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
    kinds = {
        "it lacks": sorted(expected.keys() - shapes.keys()),
        "it has the unknown": sorted(shapes.keys() - expected.keys()),
        "of another shape:": [
            f"{name} is {shapes[name]} instead of {shape}"
            for name, shape in expected.items()
            if name in shapes and shapes[name] != shape
        ],
    }
    return [f"{title} {_join_names(names)}" for title, names in kinds.items() if names]


def _join_names(names: list[str]) -> str:
    more = len(names) - NAMED_AT_MOST
    return ", ".join(names[:NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")


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
        if isinstance(module, Normed) and (spelling := _SPELLINGS.get(module.weight_norm))
    }


def _finite(stored: Mapping[str, Tensor], name: str) -> Tensor:
    tensor = stored[name].float()
    if not bool(tensor.isfinite().all()):
        raise CheckpointError(f"{name} in the codec file holds values that are not finite.")
    return tensor


@dataclass(frozen=True, slots=True)
class ConversionRecord:
    """Hold what the converted file was made from; size in bytes, time in nanoseconds."""

    source: str
    source_sha256: str
    source_size: int
    source_mtime_ns: int
    codec_fingerprint: str  # of encoding in float32, for people who compare checkpoints


def record_path(converted: Path) -> Path:
    return converted.with_name(f"{converted.name}.json")


def check_source_unchanged(converted: Path, original: Path) -> None:
    """Make sure that `converted` holds the weights of `original`.

    Size and time of the original are compared with the record; where they differ, or there is no
    record, its content is hashed and compared with the digest inside the converted file.

    Raises:
        CheckpointError: the original is another one, or the converted file does not say.
    """
    with open_safetensors(converted) as opened:
        digest = (opened.metadata() or {}).get(SOURCE_DIGEST_KEY)
    if digest is None:
        raise CheckpointError(
            f"{converted} does not record which {original.name} it was made from. Keep only "
            "one of the two files, or convert again with ./tts convert_codec "
            f"{converted.parent}."
        )
    found = original.stat()
    try:
        text = record_path(converted).read_text(encoding="utf-8")
        record = ConversionRecord(**json.loads(text))
        untouched = (record.source_sha256, record.source_size, record.source_mtime_ns) == (
            digest, found.st_size, found.st_mtime_ns
        )  # fmt: skip
    except (OSError, ValueError, TypeError):
        untouched = False  # without a readable record the content decides
    if not untouched and file_sha256(original) != digest:
        raise CheckpointError(
            f"{original} changed after {converted.name} was made from it; convert it again "
            f"with ./tts convert_codec {converted.parent}."
        )


# Counts up when a waveform would be prepared otherwise (mixing, resampling, padding): codes made
# before are then stale.
PREPROCESSING_VERSION = 1


def codec_fingerprint(
    opened: CodecFile, precision: str = "float32", *, cache_dir: Path | None = None
) -> str:
    """Return what a voice's codes depend on besides its clip, as hexadecimal sha256.

    It covers the weights used to encode, the sizes that no tensor shows, the encoder's
    precision and the preprocessing version; not the container, nor the dtype that weights are
    stored in.

    Args:
        precision: that of the encoder, one of `PRECISIONS`.
        cache_dir: where the weights' digest is kept, so that a restart need not read them all.
    """
    numbers = precision if precision == "tf32" else f"torch.{precision}"
    weights, sizes = half_digest(opened, CodecEncoder, cache_dir=cache_dir), opened.config
    windows = (sizes.encoder_transformer.window, sizes.pre_module.window)
    hidden = f"{sizes.sample_rate} {windows}"  # what no tensor shows
    parts = ("encode", weights, numbers, str(PREPROCESSING_VERSION), hidden)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def half_digest(
    opened: CodecFile,
    half: type[CodecEncoder] | type[CodecDecoder],
    *,
    cache_dir: Path | None = None,
) -> str:
    """Return the sha256 of the weights that one half uses, remembered by the file's identity."""

    def compute() -> str:
        with torch.device("meta"):
            names = stored_shapes(half(opened.config))
        return weights_digest({name: opened.tensors[name] for name in names})

    return remembered_digest(f"{half.__name__}|{opened.identity}", compute, cache_dir)


def weights_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the sha256 over names, shapes and values as little-endian float32, sorted by name."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}{tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().float().contiguous().numpy().astype("<f4", copy=False).data)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class ConvertResult:
    """Hold what a conversion wrote."""

    path: Path
    record: Path
    num_tensors: int
    num_bytes: int
    source_sha256: str
    codec_fingerprint: str  # of encoding in float32


def convert_codec(checkpoint_dir: Path) -> ConvertResult:
    """Write `codec.safetensors` beside `codec.pth`, with the same tensors under plain names.

    An existing conversion is replaced. The original stays and is not needed any more.

    Raises:
        CheckpointError: there is no `codec.pth`, it is not exactly a codec of this model, it
            changed meanwhile, or the folder cannot be written to.
    """
    source, target = checkpoint_dir / PICKLE_NAME, checkpoint_dir / SAFETENSORS_NAME
    if not source.is_file():
        raise CheckpointError(f"{source} does not exist, so there is nothing to convert.")
    before = source.stat()
    opened = open_codec_file(source)
    digest = file_sha256(source)
    now = source.stat()
    if (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise CheckpointError(f"{source} changed while it was read; convert it again.")
    fingerprint = codec_fingerprint(opened)
    metadata = {
        "format": "pt",
        SOURCE_DIGEST_KEY: digest,
        "codec_fingerprint": fingerprint,
        "encoder_sha256": half_digest(opened, CodecEncoder),
        "decoder_sha256": half_digest(opened, CodecDecoder),
    }
    tensors = _apart(opened.tensors)
    record, written = record_path(target), ConversionRecord(
        source.name, digest, before.st_size, before.st_mtime_ns, fingerprint
    )  # fmt: skip
    text = json.dumps(asdict(written), indent=2) + "\n"
    try:
        replace_file(target, lambda path: save_file(tensors, path, metadata=metadata))
        replace_file(record, lambda path: path.write_text(text, encoding="utf-8"))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{target} cannot be written: {error}.") from error
    return ConvertResult(target, record, len(tensors), target.stat().st_size, digest, fingerprint)


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with a storage each, as safetensors wants them; most have one already."""
    taken: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone() if storage in taken else tensor.contiguous()
        taken.add(storage)
    return apart
