"""Test that a file is replaced whole or not at all."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from synth.engine.loading.atomic_file import replace_file


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
