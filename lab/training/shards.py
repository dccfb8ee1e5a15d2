"""Keep what the teachers said in numbered shards, each made from its own seed, written at once."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lab.training.flite import Utterance

_PREFIX = "speech"
_ROWS = ("pitch", "cepstra", "strengths")  # of an utterance
_NO_WAVE = np.zeros(0, np.int16)


def shard_path(folder: Path, number: int) -> Path:
    """Return where a shard lies."""
    return folder / f"{_PREFIX}-{number:03}.npz"


def shard_paths(folder: Path) -> list[Path]:
    """Return the shards that are complete, in order."""
    return sorted(folder.glob(f"{_PREFIX}-[0-9][0-9][0-9].npz"))


def write_shard(path: Path, utterances: Sequence[Utterance]) -> None:
    """Write a shard; it appears under its name only when it is whole.

    Pitch, cepstra and strengths are stored as float16.
    """
    names = sorted({name for each in utterances for _, _, name in each.phones})
    number = {name: index for index, name in enumerate(names)}
    about = {
        "phones": names,
        "said": [[each.text, each.teacher, list(each.words)] for each in utterances],
    }
    phones = [phone for each in utterances for phone in each.phones]
    rows = {
        name: np.concatenate([getattr(each, name) for each in utterances], dtype=np.float16)
        for name in _ROWS
    }
    temporary = path.with_suffix(".partial")
    with temporary.open("wb") as file:
        np.savez(
            file,
            pitch=rows["pitch"],
            cepstra=rows["cepstra"],
            strengths=rows["strengths"],
            about=np.frombuffer(json.dumps(about).encode(), np.uint8),
            waves=np.concatenate([each.wave for each in utterances]),
            times=np.array([phone[:2] for phone in phones], np.float64),
            phones=np.array([number[name] for _, _, name in phones], np.uint8),
            num_rows=np.array([each.num_rows for each in utterances], np.int32),
            num_phones=np.array([len(each.phones) for each in utterances], np.int32),
            num_samples=np.array([len(each.wave) for each in utterances], np.int32),
        )
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_shard(path: Path, *, waves: bool = True) -> list[Utterance]:
    """Return a shard's utterances; without `waves` theirs are empty, which saves memory."""
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files if waves or name != "waves"}
    about = json.loads(arrays["about"].tobytes())
    names = about["phones"]
    rows, phones, samples = (
        np.concatenate([[0], np.cumsum(arrays[name], dtype=np.int64)]).tolist()
        for name in ("num_rows", "num_phones", "num_samples")
    )
    utterances = []
    for index, (text, teacher, words) in enumerate(about["said"]):
        own_rows = slice(rows[index], rows[index + 1])
        own_phones = slice(phones[index], phones[index + 1])
        times, found = arrays["times"][own_phones].tolist(), arrays["phones"][own_phones].tolist()
        utterances.append(
            Utterance(
                text=text,
                teacher=teacher,
                wave=arrays["waves"][samples[index] : samples[index + 1]] if waves else _NO_WAVE,
                **{name: arrays[name][own_rows] for name in _ROWS},
                phones=tuple(
                    (start, end, names[phone])
                    for (start, end), phone in zip(times, found, strict=True)
                ),
                words=tuple((start, name) for start, name in words),
            )
        )
    return utterances
