"""Hold the figures that are aimed at on one H200, and set beside them what was found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.gpu_check.records import DONE, MISMATCH

TARGET_PRESET = "full"  # the shape that the figures are of
COLUMNS = ("figure", "unit", "reach", "aim", "limit", "found", "verdict")


@dataclass(frozen=True, slots=True)
class Figure:
    """Name a figure and the step that finds it; `limit` is what the machine itself allows."""

    key: str
    title: str
    unit: str
    reach: float
    aim: float
    limit: str
    part: str
    step: str
    more_is_better: bool = False

    def verdict(self, value: float) -> str:
        """Say which of the two marks a value has met."""
        sign = 1 if self.more_is_better else -1
        if sign * value >= sign * self.aim:
            return "aim met"
        return "reach met" if sign * value >= sign * self.reach else "MISSED"


FIGURES = (
    Figure("rtf", "RTF of one stream, bfloat16", "", 0.12, 0.095, "0.074", "speed", "ar"),
    Figure("rtf_int8", "RTF of one stream, int8", "", 0.075, 0.06, "0.04", "speed", "ar"),
    Figure("fast_ms", "fast AR per frame, one stream", "ms", 2.6, 2.1, "1.73", "speed", "fast"),
    Figure("memory_gb", "memory of 64 slots x 2048", "GB", 40, 34, "30", "speed", "memory"),
    Figure("first_audio_ms", "first audio, stored voice", "ms", 40, 16, "10", "serving", "stream"),
    Figure("first_audio_32_ms", "the same, 32 callers", "ms", 250, 150, "-", "serving", "stream"),
    Figure("first_audio_64_ms", "the same, 64 callers", "ms", 400, 190, "-", "serving", "stream"),
    Figure(
        "requests_per_second",
        "requests of a sentence, 32 callers",
        "1/s",
        8.56,
        20,
        "-",
        "serving",
        "stream",
        more_is_better=True,
    ),
    Figure(
        "tokens_per_second",
        "acoustic tokens, end to end",
        "1/s",
        50_000,
        75_000,
        "74000-124000",
        "serving",
        "segments",
        more_is_better=True,
    ),
    Figure(
        "tokens_per_second_int8",
        "the same in 8 bits",
        "1/s",
        50_000,
        75_000,
        "-",
        "serving",
        "segments",
        more_is_better=True,
    ),
    Figure(
        "codec_rate",
        "codec decode alone",
        "audio-s/s",
        700,
        1500,
        "3400",
        "serving",
        "codec",
        more_is_better=True,
    ),
    Figure("encode_10_ms", "encode 10 s", "ms", 40, 15, "-", "serving", "encode"),
    Figure("encode_30_ms", "encode 30 s", "ms", 100, 40, "-", "serving", "encode"),
    Figure("start_seconds", "process start to audio", "s", 25, 12, "6", "serving", "cold"),
)


def figure_rows(
    records: Iterable[Mapping[str, Any]], *, device: str, preset: str, on_gpu: bool
) -> list[dict[str, str]]:
    """Return a row for each figure; one that was not measured says why and has no verdict.

    Args:
        records: those of any device and shape; others than these count as missing.
    """
    here = {
        (record["part"], record["step"]): record
        for record in records
        if record.get("device") == device and record.get("preset") == preset
    }
    return [
        _row(figure, here.get((figure.part, figure.step)), preset=preset, on_gpu=on_gpu)
        for figure in FIGURES
    ]


def _row(
    figure: Figure, record: Mapping[str, Any] | None, *, preset: str, on_gpu: bool
) -> dict[str, str]:
    value = None
    if record is not None and record["status"] in (DONE, MISMATCH):
        value = record.get("figures", {}).get(figure.key)
    if value is None:
        found, verdict = "-", f"not measured: {_why(figure, record)}"
    else:
        found = f"{value:.4g}" if value < 10_000 else f"{value:.0f}"
        verdict = figure.verdict(value)
        if not on_gpu or preset != TARGET_PRESET:
            verdict = f"none: not a GPU with the shape {TARGET_PRESET}"
    return {
        "figure": figure.title,
        "unit": figure.unit,
        "reach": f"{figure.reach:g}",
        "aim": f"{figure.aim:g}",
        "limit": figure.limit,
        "found": found,
        "verdict": verdict,
    }


def _why(figure: Figure, record: Mapping[str, Any] | None) -> str:
    if record is None:
        return f"{figure.part} {figure.step} has not run here"
    if record["status"] in (DONE, MISMATCH):
        return f"{figure.part} {figure.step} did not give it"
    return f"{figure.part} {figure.step}: {record.get('reason') or record['status']}"


def as_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return rows under aligned headings, numbers with four digits and a dash for none."""
    cells = [list(columns), *([_cell(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(columns))]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)
