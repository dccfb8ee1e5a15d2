"""Name a checkpoint by its content: the same digest means the same model and tokenizer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from synth.engine.atomic_file import replace_file
from synth.engine.errors import CheckpointError
from synth.engine.weights import find_weight_files

_BLOCK_BYTES = 1 << 20


def model_fingerprint(
    checkpoint_dir: Path, prompt_version: str, *, cache_dir: Path | None = None
) -> str:
    """Return a digest of configuration, weights, tokenizer and the prompt's layout version.

    With `cache_dir` a file that kept path, size and modification time is not read again. Raises
    CheckpointError for a missing file.
    """
    files = ["config.json", "tokenizer.json", *(p.name for p in find_weight_files(checkpoint_dir))]
    return files_fingerprint(
        (checkpoint_dir / name for name in files), salt=prompt_version, cache_dir=cache_dir
    )


def files_fingerprint(paths: Iterable[Path], *, salt: str, cache_dir: Path | None = None) -> str:
    """Return one digest, 64 hex digits, over the names and contents of files, in their order."""
    total = hashlib.sha256(f"{salt}\n".encode())
    for path in paths:
        total.update(f"{path.name} {file_digest(path, cache_dir=cache_dir)}\n".encode())
    return total.hexdigest()


def file_digest(path: Path, *, cache_dir: Path | None = None) -> str:
    """Return the SHA-256 of a file's content; see `model_fingerprint` for the cache."""
    try:
        stat = path.stat()
    except OSError as error:
        raise CheckpointError(f"{path} is missing or cannot be read.") from error
    facts: list[str | int] = [str(path.resolve()), stat.st_size, stat.st_mtime_ns]
    entry = None
    if cache_dir is not None:
        entry = cache_dir / f"{hashlib.sha256(str(facts[0]).encode()).hexdigest()}.json"
        if (known := _cached_digest(entry, facts)) is not None:
            return known
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    if entry is not None:
        _store(entry, {"facts": facts, "sha256": digest.hexdigest()})
    return digest.hexdigest()


def _cached_digest(entry: Path, facts: list[str | int]) -> str | None:
    """Return the remembered digest, None when there is none for exactly these facts."""
    try:
        content = json.loads(entry.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # no entry, or one cut short by a crash: the file is read again
    if not isinstance(content, dict) or content.get("facts") != facts:
        return None
    digest = content.get("sha256")
    return digest if isinstance(digest, str) else None


def _store(entry: Path, content: dict[str, object]) -> None:
    """Write an entry whole or not at all, whoever else writes it now."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    replace_file(entry, lambda part: part.write_text(json.dumps(content), encoding="utf-8"))
