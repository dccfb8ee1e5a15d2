"""Pictures of spectrograms are whole PNG files."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

from lab.training.evaluation.report import encode_png, write_spectrograms


def test_pixels_come_back_from_the_file() -> None:
    pixels = np.arange(35, dtype=np.uint8).reshape(5, 7)

    png = encode_png(pixels)

    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", png[16:24]) == (7, 5)
    start = png.index(b"IDAT") + 4
    (size,) = struct.unpack(">I", png[start - 8 : start - 4])
    lines = np.frombuffer(zlib.decompress(png[start : start + size]), np.uint8).reshape(5, 8)
    assert (lines[:, 1:] == pixels).all()
    assert struct.unpack(">I", png[start + size : start + size + 4])[0] == zlib.crc32(
        png[start - 4 : start + size]
    )


def test_a_tone_is_a_dark_line_in_a_light_picture(tmp_path: Path) -> None:
    tone = 0.3 * np.sin(2 * np.pi * 1000 * np.arange(44100) / 44100)
    write_spectrograms(tmp_path / "out" / "s.png", [[tone, tone], [tone, tone]])
    assert (tmp_path / "out" / "s.png").stat().st_size > 200
