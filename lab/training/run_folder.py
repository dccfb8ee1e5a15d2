"""Own a run's folder: speech, what each stage has made, and the losses along the way."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch


class RunFolderError(Exception):
    """A stage's result is missing; the text names the stage that makes it."""


class RunFolder:
    """Own one folder: speech, what each stage has made, and the losses along the way."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.speech = path / "speech"

    def save(self, name: str, content: Mapping[str, Any]) -> None:
        """Write `name`.pt; the file under that name is always a whole one."""
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = self.path / f"{name}.partial"
        with temporary.open("wb") as file:
            torch.save(dict(content), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path / f"{name}.pt")

    def load(self, name: str) -> dict[str, Any]:
        """Return what `save` was given; raise RunFolderError when the stage has not run."""
        path = self.path / f"{name}.pt"
        if not path.is_file():
            raise RunFolderError(
                f"{path} is missing: run train-demo --stage {name.split('-')[0]} first."
            )
        content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return content

    def has(self, name: str) -> bool:
        """Return whether `name`.pt has been saved."""
        return (self.path / f"{name}.pt").is_file()

    def append_losses(self, stage: str, row: Mapping[str, float]) -> None:
        """Add one row to the stage's losses."""
        path = self.path / f"{stage}.losses.jsonl"
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def read_losses(self, stage: str) -> list[dict[str, float]]:
        """Return the stage's losses in order; a row that a kill cut off is left out."""
        path = self.path / f"{stage}.losses.jsonl"
        if not path.is_file():
            return []
        rows: list[dict[str, float]] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                continue
        return rows
