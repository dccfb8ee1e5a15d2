"""Keep rendered speech in numbered shards, each made from its own seed and written at once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from lab.training.acoustics import ROWS_PER_FRAME

ALIGNED, PLAIN = "aligned", "plain"


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """Hold one rendered text.

    `features` float16 [4 T, features], `states` one name a frame, `letters` float32 [T] or empty,
    `wave` int16 at 22050 Hz, empty where only the features are needed.
    """

    text: str
    voice: int
    features: npt.NDArray[np.float16]
    states: tuple[str, ...]
    letters: npt.NDArray[np.float32]
    wave: npt.NDArray[np.int16]

    @property
    def num_frames(self) -> int:
        """Return the code frames."""
        return len(self.features) // ROWS_PER_FRAME


def shard_path(folder: Path, kind: str, number: int) -> Path:
    """Return where a shard lies."""
    return folder / f"{kind}-{number:03}.npz"


def shard_paths(folder: Path, kind: str) -> list[Path]:
    """Return the shards of a kind that are complete, in order."""
    return sorted(folder.glob(f"{kind}-[0-9][0-9][0-9].npz"))


def write_shard(path: Path, clips: Sequence[Clip]) -> None:
    """Write a shard; it appears under its name only when it is whole."""
    names = sorted({state for clip in clips for state in clip.states})
    number = {name: index for index, name in enumerate(names)}
    about = {"states": names, "clips": [[clip.text, clip.voice] for clip in clips]}
    temporary = path.with_suffix(".partial")
    with temporary.open("wb") as file:
        np.savez(
            file,
            about=np.frombuffer(json.dumps(about).encode(), np.uint8),
            features=np.concatenate([clip.features for clip in clips]),
            states=np.array([number[state] for clip in clips for state in clip.states], np.uint16),
            letters=np.concatenate([clip.letters for clip in clips]),
            waves=np.concatenate([clip.wave for clip in clips]),
            num_frames=np.array([clip.num_frames for clip in clips], np.int32),
            num_letters=np.array([len(clip.letters) for clip in clips], np.int32),
            num_samples=np.array([len(clip.wave) for clip in clips], np.int32),
        )
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_shard(path: Path) -> list[Clip]:
    """Return a shard's clips."""
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    about = json.loads(arrays["about"].tobytes())
    names = about["states"]
    frames, letters, samples = (
        np.concatenate([[0], np.cumsum(arrays[name], dtype=np.int64)])
        for name in ("num_frames", "num_letters", "num_samples")
    )
    clips = []
    for index, (text, voice) in enumerate(about["clips"]):
        first, last = int(frames[index]), int(frames[index + 1])
        clips.append(
            Clip(
                text=text,
                voice=voice,
                features=arrays["features"][first * ROWS_PER_FRAME : last * ROWS_PER_FRAME],
                states=tuple(names[state] for state in arrays["states"][first:last]),
                letters=arrays["letters"][letters[index] : letters[index + 1]],
                wave=arrays["waves"][samples[index] : samples[index + 1]],
            )
        )
    return clips


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
