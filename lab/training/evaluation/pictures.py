"""Draw spectrograms and melodies of generated speech beside its teacher's."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import shorten

import numpy as np
import numpy.typing as npt

from lab.training.evaluation.pitch import HIGHEST_HZ, LOWEST_HZ, Melodies
from lab.training.evaluation.spectra import HOP, RATE, Floats, log_mel

_GAP = 6  # pixels between spectrograms
_ZOOM = 3  # pixels of a mel band
_DECADES = 3.5  # from white to black
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 960, 220, 56, 28, 34, 26  # pixels of one melody
_TITLE_LETTERS = 140
_SAID, _TEACHER = "#d55e00", "#0072b2"


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """Hold one sentence's melodies, to be drawn."""

    text: str
    speaker: str
    melodies: Melodies


def write_melodies(path: Path, panels: Sequence[Panel]) -> None:
    """Write an SVG with one panel for each sentence: pitch in Hz over the teacher's seconds."""
    size = f'width="{_WIDTH}" height="{_HEIGHT * len(panels)}"'
    style = 'font-family="sans-serif" font-size="12" style="background: white"'
    body = "\n".join(_panel(panel, index * _HEIGHT) for index, panel in enumerate(panels))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n{body}\n</svg>\n',
        encoding="utf-8",
    )


def _panel(panel: Panel, top: int) -> str:
    said, wanted = panel.melodies.said, panel.melodies.wanted
    voiced = np.concatenate([said, wanted])
    voiced = voiced[np.isfinite(voiced)]
    low = max(LOWEST_HZ, float(voiced.min()) * 0.9) if len(voiced) else LOWEST_HZ
    high = min(HIGHEST_HZ, float(voiced.max()) * 1.1) if len(voiced) else HIGHEST_HZ
    inner = _HEIGHT - _TOP - _BOTTOM
    scale = (_WIDTH - _LEFT - _RIGHT) / max(len(wanted) - 1, 1)

    def height(hz: float) -> float:
        return top + _TOP + inner * float(np.log(high / hz) / np.log(high / low))

    def dots(contour: Floats, colour: str) -> str:
        return "".join(
            f'<circle cx="{_LEFT + frame * scale:.1f}" cy="{height(hz):.1f}" r="2" '
            f'fill="{colour}"/>'
            for frame, hz in enumerate(contour)
            if np.isfinite(hz)
        )

    title = shorten(f"{panel.speaker}: {panel.text}", _TITLE_LETTERS, placeholder=" …")
    lines = [_text(_LEFT, top + 14, title)]
    legend = f"correlation {panel.melodies.correlation:.2f}"
    lines.append(
        f'<text x="{_LEFT}" y="{top + 29}">{legend}, '
        f'<tspan fill="{_TEACHER}">teacher</tspan>, <tspan fill="{_SAID}">generated</tspan></text>'
    )
    for hz in range(60, 421, 20):
        if low <= hz <= high:
            y = height(hz)
            lines.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#ddd"/>')
            lines.append(_text(8, y + 4, f"{hz} Hz"))
    for second in range(int(len(wanted) * HOP / RATE) + 1):
        x = _LEFT + second * RATE / HOP * scale
        lines.append(_text(x, top + _HEIGHT - 8, f"{second} s"))
    return "\n".join([*lines, dots(wanted, _TEACHER), dots(said, _SAID)])


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def write_spectrograms(path: Path, rows: Sequence[Sequence[npt.NDArray[np.floating]]]) -> None:
    """Write one line of pictures for each row of waves at `RATE`; time goes right, pitch up."""
    pictures = [[_spectrogram(wave) for wave in row] for row in rows]
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


def _spectrogram(wave: npt.NDArray[np.floating]) -> npt.NDArray[np.uint8]:
    mel = log_mel(wave).T[::-1]
    shade = np.clip((mel - mel.max()) / _DECADES + 1, 0, 1)
    grey = np.round(255 * (1 - shade)).astype(np.uint8)
    return np.repeat(grey, _ZOOM, axis=0)
