"""A file that was written, and the object that it becomes."""

from __future__ import annotations

import hashlib
from pathlib import Path

from django.core.files.storage import default_storage

from ttsweb.storage import MadeFile


def test_made_file_is_stored_under_its_digest_and_keeps_what_was_measured(
    tmp_path: Path, storage_folder: Path
) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(b"0123456789")

    made = MadeFile.of(path, duration_seconds=1.5, report={"loudness": -20}, peaks=[1, 2])
    first, second = made.stored(path, "wav"), made.stored(path, "wav")

    digest = hashlib.sha256(b"0123456789").hexdigest()
    assert (made.key, made.sha256, made.size_bytes) == ("", digest, 10)
    assert first.key.startswith(f"exports/{digest}/") and first.key.endswith(".wav")
    assert first.key != second.key, "one may be deleted while the other stays"
    with default_storage.open(first.key) as file:
        assert file.read() == b"0123456789"
    measured = {"duration_seconds": 1.5, "report": {"loudness": -20}}
    assert first.columns == {"key": first.key, "size_bytes": 10, "sha256": digest} | measured
    assert first.peaks == [1, 2]
