"""Keep rendered speech in numbered shards, each made from its own seed and written at once."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

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
