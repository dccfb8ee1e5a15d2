"""Evaluate a checkpoint folder and put its figures into one object, a table and pictures."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lab.training.evaluation.clean_speech import measured_voices
from lab.training.evaluation.measure import (
    Evaluation,
    Figures,
    chance,
    evaluation_sentences,
    log_mel,
)
from lab.training.evaluation.speaking import SamplingChoice, Speaker
from synth.engine import Engine, EngineConfig

KEYS = (
    "nearest_of_40",
    "one_word_of_10",
    "one_word_roundtrip",
    "pitch_within_20",
    "nearest_voice",
    "heldout_nearest_of_40",
    "early",
    "runaway",
)
_REACH = {
    "nearest_of_40": 0.95, "one_word_of_10": 0.70, "one_word_roundtrip": 0.95,
    "pitch_within_20": 0.80, "nearest_voice": 0.70, "heldout_nearest_of_40": 0.80,
    "early": 0.03, "runaway": 0.03, "rtf": 0.5, "bytes": 25_000_000,
}  # fmt: skip
_LESS_IS_BETTER = ("early", "runaway", "rtf", "bytes")
_GAP = 6  # pixels between pictures
_ZOOM = 2  # pixels of a mel band
_DECADES = 3.5  # from white to black


def evaluate(
    checkpoint: Path,
    out: Path,
    *,
    sampling: SamplingChoice,
    threads: int,
    report: Callable[[str], None],
) -> dict[str, Any]:
    """Return the figures of a checkpoint; spectrograms go to `out`/spectrograms.png.

    Each line of the picture is clean speech, its way through the codec, and generated speech.
    """
    voices = measured_voices(checkpoint)
    config = EngineConfig(checkpoint, device="cpu", dtype="float32", slots=1, threads=threads)
    engine = Engine.load(config)
    try:
        engine.warm_up()
        speaker = Speaker(engine, checkpoint, sampling)
        figures = Evaluation(speaker, voices, evaluation_sentences(), report).run()
    finally:
        engine.close()
    write_spectrograms(out / "spectrograms.png", figures.pictures)
    result = _result(figures, speaker)
    result["bytes"] = sum(path.stat().st_size for path in checkpoint.rglob("*") if path.is_file())
    result["voices"] = list(voices.trained)
    return result


def _result(figures: Figures, speaker: Speaker) -> dict[str, Any]:
    result: dict[str, Any] = {key: round(figures.shares[key].share, 4) for key in KEYS}
    result["rtf"] = round(speaker.work_seconds / max(speaker.audio_seconds, 1e-9), 3)
    result["length_ratio"] = round(float(np.median(figures.length_ratios)), 3)
    result["roundtrip"] = {
        key.removesuffix("_roundtrip"): round(tally.share, 4)
        for key, tally in figures.shares.items()
        if key.endswith("_roundtrip")
    }
    result["median_pitch_hz"] = {
        name: round(float(np.median(pitches)), 1) for name, pitches in figures.pitches.items()
    }
    result["control"] = {key: round(tally.share, 4) for key, tally in figures.controls.items()}
    num_voices = len(figures.pitches)
    result["chance"] = {**chance(), "nearest_voice": round(1 / num_voices, 4)}
    return result


def table(result: dict[str, Any]) -> str:
    """Return the figures as lines: name, value, what should be reached, control, chance."""
    lines = [f"{'figure':24}{'value':>12}{'reach':>12}{'control':>10}{'chance':>10}"]
    for name, reach in _REACH.items():
        sign = "<=" if name in _LESS_IS_BETTER else ">="
        control = result["control"].get(name, "")
        by_chance = result["chance"].get(name, "")
        lines.append(
            f"{name:24}{result[name]:>12}{f'{sign} {reach:g}':>12}{control:>10}{by_chance:>10}"
        )
    pitches = ", ".join(f"{name} {hz}" for name, hz in result["median_pitch_hz"].items())
    lines.append(f"length {result['length_ratio']} of clean speech's; pitch in Hz: {pitches}")
    return "\n".join(lines)


def write_spectrograms(path: Path, rows: Sequence[Sequence[npt.NDArray[np.floating]]]) -> None:
    """Write one line of pictures for each row of waves at 44.1 kHz; time goes right, pitch up."""
    pictures = [[_picture(wave) for wave in row] for row in rows]
    widths = [max(row[column].shape[1] for row in pictures) for column in range(len(pictures[0]))]
    height = pictures[0][0].shape[0]
    canvas = np.full(
        ((height + _GAP) * len(pictures), sum(widths) + _GAP * len(widths)), 255, np.uint8
    )
    for line, row in enumerate(pictures):
        left = 0
        for picture, width in zip(row, widths, strict=True):
            top = line * (height + _GAP)
            canvas[top : top + height, left : left + picture.shape[1]] = picture
            left += width + _GAP
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode_png(canvas))


def encode_png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Return grey pixels [height, width] as a PNG file."""
    height, width = pixels.shape
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    checked = kind + data
    return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))


def _picture(wave: npt.NDArray[np.floating]) -> npt.NDArray[np.uint8]:
    mel = log_mel(wave).T[::-1]
    shade = np.clip((mel - mel.max()) / _DECADES + 1, 0, 1)
    grey = np.round(255 * (1 - shade)).astype(np.uint8)
    return np.repeat(grey, _ZOOM, axis=0)
