"""Test loaded_models."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from synth.engine.errors import CheckpointError
from synth.engine.loading.loaded_models import file_digest, model_fingerprint
from tests.synth.engine.random_checkpoint import write_checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_changed_byte_in_any_file_changes_the_fingerprint(checkpoint: Path, name: str) -> None:
    before = model_fingerprint(checkpoint, "1")

    content = bytearray((checkpoint / name).read_bytes())
    content[-1] ^= 1
    (checkpoint / name).write_bytes(content)

    assert model_fingerprint(checkpoint, "1") != before


def test_another_layout_of_prompts_changes_the_fingerprint(checkpoint: Path) -> None:
    assert model_fingerprint(checkpoint, "1") != model_fingerprint(checkpoint, "2")


def test_a_copy_elsewhere_has_the_same_fingerprint(checkpoint: Path, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "copy")

    assert model_fingerprint(tmp_path / "copy", "1") == model_fingerprint(checkpoint, "1")


def test_a_cached_digest_is_used_until_the_file_changes(tmp_path: Path) -> None:
    file, cache = tmp_path / "weights", tmp_path / "cache"
    file.write_bytes(b"one")
    first = file_digest(file, cache_dir=cache)
    (entry,) = cache.iterdir()
    entry.write_text(entry.read_text(encoding="utf-8").replace(first, "f" * 64), encoding="utf-8")

    remembered = file_digest(file, cache_dir=cache)
    os.utime(file, ns=(1, 1))
    read_again = file_digest(file, cache_dir=cache)

    assert remembered == "f" * 64
    assert read_again == first == file_digest(file)


def test_a_broken_cache_entry_is_read_over(tmp_path: Path) -> None:
    file, cache = tmp_path / "weights", tmp_path / "cache"
    file.write_bytes(b"one")
    file_digest(file, cache_dir=cache)
    (entry,) = cache.iterdir()
    entry.write_text("{", encoding="utf-8")

    assert file_digest(file, cache_dir=cache) == file_digest(file)


def test_a_missing_file_is_named(checkpoint: Path) -> None:
    (checkpoint / "tokenizer.json").unlink()

    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        model_fingerprint(checkpoint, "1")
