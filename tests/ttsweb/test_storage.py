"""Test that an object is there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.exceptions import SuspiciousFileOperation
from django.core.files.base import ContentFile, File

from ttsweb.storage import AtomicFileSystemStorage


class BreaksHalfWay(File):  # type: ignore[type-arg]  # the stub's parameter does not exist at run time
    def chunks(self, chunk_size: int | None = None) -> Iterator[bytes]:
        yield b"first"
        raise OSError(28, "No space left on device")


def test_an_object_is_published_under_its_name(tmp_path: Path) -> None:
    storage = AtomicFileSystemStorage(location=tmp_path)
    name = storage.save("clips/ab/one.wav", ContentFile(b"sound"))
    assert name == "clips/ab/one.wav"
    assert (tmp_path / name).read_bytes() == b"sound"
    assert [entry.name for entry in (tmp_path / "clips/ab").iterdir()] == ["one.wav"]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    storage = AtomicFileSystemStorage(location=tmp_path)
    with pytest.raises(OSError, match="No space"):
        storage.save("clips/ab/one.wav", BreaksHalfWay(None, name="one.wav"))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    storage = AtomicFileSystemStorage(location=tmp_path)
    first = storage.save("a.wav", ContentFile(b"first"))
    second = storage.save("a.wav", ContentFile(b"second"))
    assert first != second
    assert (tmp_path / first).read_bytes() == b"first"


def test_a_name_cannot_leave_the_folder(tmp_path: Path) -> None:
    storage = AtomicFileSystemStorage(location=tmp_path / "inside")
    with pytest.raises(SuspiciousFileOperation):
        storage.save(os.path.join("..", "outside.wav"), ContentFile(b"x"))  # noqa: PTH118
