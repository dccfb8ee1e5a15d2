"""Test how a converted codec is held to the file it was made from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from synth.engine.codec.files import conversion_record
from synth.engine.codec.files.conversion_record import check_source_unchanged, record_path
from synth.engine.codec.files.convert import convert_codec
from synth.engine.errors import CheckpointError


@pytest.fixture
def converted(checkpoint: Path) -> tuple[Path, Path]:
    """Return a converted codec and its original."""
    return convert_codec(checkpoint).path, checkpoint / "codec.pth"


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the list of files whose whole content was hashed."""
    hashed: list[Path] = []
    original = conversion_record.file_sha256

    def count(path: Path) -> str:
        hashed.append(path)
        return original(path)

    monkeypatch.setattr(conversion_record, "file_sha256", count)
    return hashed


def test_an_untouched_original_is_not_hashed_again(
    converted: tuple[Path, Path], hashes: list[Path]
) -> None:
    check_source_unchanged(*converted)

    assert hashes == []


def test_a_copy_with_another_time_is_hashed_and_accepted(
    converted: tuple[Path, Path], hashes: list[Path]
) -> None:
    os.utime(converted[1], ns=(1, 1))

    check_source_unchanged(*converted)

    assert hashes == [converted[1]]


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"source": "codec.pth"}'])
def test_without_a_readable_record_the_content_decides(
    converted: tuple[Path, Path], hashes: list[Path], content: str | None
) -> None:
    record = record_path(converted[0])
    if content is None:
        record.unlink()
    else:
        record.write_text(content, encoding="utf-8")

    check_source_unchanged(*converted)

    assert hashes == [converted[1]]


def test_another_original_of_the_same_size_is_refused(converted: tuple[Path, Path]) -> None:
    data = bytearray(converted[1].read_bytes())
    data[len(data) // 2] ^= 1
    converted[1].write_bytes(bytes(data))

    with pytest.raises(CheckpointError, match=r"changed after codec\.safetensors"):
        check_source_unchanged(*converted)
