"""Convert `codec.pth` to `codec.safetensors` once: quicker to open, and nothing to unpickle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from synth.engine.codec.decoder import CodecDecoder
from synth.engine.codec.encoder import CodecEncoder
from synth.engine.codec.files.codec_file import PICKLE_NAME, SAFETENSORS_NAME, open_codec_file
from synth.engine.codec.files.conversion_record import (
    SOURCE_DIGEST_KEY,
    ConversionRecord,
    file_sha256,
    record_path,
    write_record,
)
from synth.engine.codec.files.fingerprint import fingerprint_of, half_digest
from synth.engine.errors import CheckpointError
from synth.engine.loading.atomic_file import replace_file


@dataclass(frozen=True, slots=True)
class ConvertResult:
    """Hold what a conversion wrote; the fingerprint is that of encoding in float32."""

    path: Path
    record: Path
    num_tensors: int
    num_bytes: int
    source_sha256: str
    codec_fingerprint: str


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
    if _changed_since(source, before):
        raise CheckpointError(f"{source} changed while it was read; convert it again.")
    fingerprint = fingerprint_of(opened)
    metadata = {
        "format": "pt",
        SOURCE_DIGEST_KEY: digest,
        "codec_fingerprint": fingerprint,
        "encoder_sha256": half_digest(opened, CodecEncoder),
        "decoder_sha256": half_digest(opened, CodecDecoder),
    }
    tensors = _apart(opened.tensors)
    try:
        replace_file(target, lambda path: save_file(tensors, path, metadata=metadata))
        write_record(
            target,
            ConversionRecord(source.name, digest, before.st_size, before.st_mtime_ns, fingerprint),
        )
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{target} cannot be written: {error}.") from error
    return ConvertResult(
        path=target,
        record=record_path(target),
        num_tensors=len(tensors),
        num_bytes=target.stat().st_size,
        source_sha256=digest,
        codec_fingerprint=fingerprint,
    )


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with a storage each, as safetensors wants them; most have one already."""
    taken: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone() if storage in taken else tensor.contiguous()
        taken.add(storage)
    return apart


def _changed_since(path: Path, before: os.stat_result) -> bool:
    now = path.stat()
    return (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns)
