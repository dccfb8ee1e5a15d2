"""Name what a codec computes by its content, and convert `codec.pth` to `codec.safetensors`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from synth.engine.codec.codec_file import (
    PICKLE_NAME,
    SAFETENSORS_NAME,
    SOURCE_DIGEST_KEY,
    CodecFile,
    ConversionRecord,
    open_codec_file,
    record_path,
    stored_shapes,
)
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.errors import CheckpointError
from synth.engine.loading.digests import file_sha256, remembered_digest, replace_file

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
