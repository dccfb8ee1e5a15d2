"""A file that people download: from its writer into the storage and into its row, one value."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from django.core.files import File
from django.core.files.storage import default_storage


@dataclass(frozen=True, slots=True)
class MadeFile:
    """A file that was written, and what was measured of it.

    `key` names its object, "" until it is stored. `report` is what was measured, `peaks` its
    waveform, at most 1,000 values of 0 to 255; `cues` holds (segment id, first sample, sample after
    the last) at `sample_rate`.
    """

    sha256: str
    size_bytes: int
    duration_seconds: float
    report: dict[str, Any] = field(default_factory=dict)
    peaks: Sequence[int] = ()
    cues: Sequence[tuple[int, int, int]] = ()
    sample_rate: int = 0
    key: str = ""

    @classmethod
    def of(cls, path: Path, *, duration_seconds: float, **measured: Any) -> Self:
        """Return the file at `path`, with what else was measured of it."""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(digest, path.stat().st_size, duration_seconds, **measured)

    def stored(self, path: Path, extension: str) -> Self:
        """Return the file once its bytes, which are at `path`, are an object of their own.

        Raises:
            OSError: the storage cannot be written.
        """
        with path.open("rb") as file:
            name = f"exports/{self.sha256}/{uuid.uuid4().hex}.{extension}"
            return replace(self, key=default_storage.save(name, File(file)))

    @property
    def columns(self) -> dict[str, Any]:
        """Return the columns that all rows of files have."""
        return {
            "key": self.key,
            "size_bytes": self.size_bytes,
            "sha256": self.sha256,
            "duration_seconds": self.duration_seconds,
            "report": self.report,
        }
