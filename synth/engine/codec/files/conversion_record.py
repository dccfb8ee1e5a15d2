"""Keep which `codec.pth` a `codec.safetensors` was converted from, and notice when it changed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from synth.engine.errors import CheckpointError
from synth.engine.loading.atomic_file import replace_file

SOURCE_DIGEST_KEY = "source_sha256"  # in the metadata of the safetensors file


@dataclass(frozen=True, slots=True)
class ConversionRecord:
    """Hold what the converted file was made from; size in bytes, time in nanoseconds."""

    source: str
    source_sha256: str
    source_size: int
    source_mtime_ns: int
    codec_fingerprint: str  # of encoding in float32, for people who compare checkpoints


def record_path(converted: Path) -> Path:
    """Return the path of the record beside a converted file."""
    return converted.with_name(f"{converted.name}.json")


def write_record(converted: Path, record: ConversionRecord) -> None:
    """Write the record beside the converted file, in one step."""
    text = json.dumps(asdict(record), indent=2) + "\n"
    replace_file(record_path(converted), lambda path: path.write_text(text, encoding="utf-8"))


def check_source_unchanged(converted: Path, original: Path) -> None:
    """Make sure that `converted` holds the weights of `original`.

    Size and time of the original are compared with the record; where they differ, or there is no
    record, its content is hashed and compared with the digest inside the converted file.

    Raises:
        CheckpointError: the original is another one, or the converted file does not say.
    """
    digest = _source_digest(converted)
    if digest is None:
        raise CheckpointError(
            f"{converted} does not record which {original.name} it was made from. Keep only "
            "one of the two files, or convert again with ./tts convert_codec "
            f"{converted.parent}."
        )
    found, record = original.stat(), _read_record(converted)
    untouched = record is not None and (
        (record.source_sha256, record.source_size, record.source_mtime_ns)
        == (digest, found.st_size, found.st_mtime_ns)
    )
    if not untouched and file_sha256(original) != digest:
        raise CheckpointError(
            f"{original} changed after {converted.name} was made from it; convert it again "
            f"with ./tts convert_codec {converted.parent}."
        )


def file_sha256(path: Path) -> str:
    """Return the sha256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _source_digest(converted: Path) -> str | None:
    try:
        with safe_open(converted, "pt") as opened:
            return (opened.metadata() or {}).get(SOURCE_DIGEST_KEY)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{converted} cannot be read as safetensors: {error}.") from error


def _read_record(converted: Path) -> ConversionRecord | None:
    """Return the record, or None where there is no readable one: the content then decides."""
    try:
        return ConversionRecord(**json.loads(record_path(converted).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
