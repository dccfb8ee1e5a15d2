"""Test that a file is replaced whole or not at all."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest

from synth.engine.errors import CheckpointError
from synth.engine.loading import weights
from synth.engine.loading.loaded_models import model_fingerprint
from synth.engine.loading.weights import file_digest, replace_file
from tests.synth.engine.random_checkpoint import write_checkpoint


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_the_new_content_takes_the_place_of_the_old(
    tmp_path: Path, umask: int, mode: int, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old", encoding="utf-8")
    request.addfinalizer(partial(os.umask, os.umask(umask)))
    replace_file(path, lambda part: part.write_text("new", encoding="utf-8"))
    assert path.read_text(encoding="utf-8") == "new"
    assert list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == mode


def test_a_failed_write_leaves_the_old_file_and_no_part(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    path.write_text("old", encoding="utf-8")

    def fail(part: Path) -> None:
        part.write_text("ne", encoding="utf-8")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        replace_file(path, fail)
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def test_a_changed_byte_and_another_layout_change_the_fingerprint_and_a_copy_does_not(
    checkpoint: Path, tmp_path: Path
) -> None:
    write_checkpoint(tmp_path / "copy")
    found = [model_fingerprint(checkpoint, "1"), model_fingerprint(checkpoint, "2")]
    assert model_fingerprint(tmp_path / "copy", "1") == found[0]
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        content = bytearray((checkpoint / name).read_bytes())
        content[-1] ^= 1
        (checkpoint / name).write_bytes(content)
        found.append(model_fingerprint(checkpoint, "1"))
    assert len(set(found)) == 5
    (checkpoint / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        model_fingerprint(checkpoint, "1")


def test_a_cached_digest_is_used_until_the_file_changes_or_the_cache_breaks(tmp_path: Path) -> None:
    file, cache = tmp_path / "weights", tmp_path / "cache"
    file.write_bytes(b"one")
    first = file_digest(file, cache_dir=cache)
    (entry,) = cache.iterdir()
    entry.write_text(entry.read_text(encoding="utf-8").replace(first, "f" * 64), encoding="utf-8")
    weights._memo.clear()  # as a restart does

    remembered = file_digest(file, cache_dir=cache)
    os.utime(file, ns=(1, 1))
    read_leniently = file_digest(file, cache_dir=cache)

    assert remembered == "f" * 64
    assert read_leniently == first == file_digest(file)
    for broken in ("", "{", "[]", '{"x": 1}', "\x00"):  # is read over and made again
        entry.write_text(broken, encoding="utf-8")
        weights._memo.clear()
        assert file_digest(file, cache_dir=cache) == first
        assert list(json.loads(entry.read_text(encoding="utf-8")).values()) == [first]
