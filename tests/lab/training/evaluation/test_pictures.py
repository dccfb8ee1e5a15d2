"""Pictures hold what was measured, in files that others can read."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from lab.training.evaluation.pictures import Panel, encode_png, write_melodies, write_spectrograms
from lab.training.evaluation.pitch import Melodies
from lab.training.evaluation.spectra import RATE

SVG = "{http://www.w3.org/2000/svg}"


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


def test_spectrograms_of_unequal_length_stand_side_by_side(tmp_path: Path) -> None:
    tone = 0.3 * np.sin(2 * np.pi * 1000 * np.arange(RATE) / RATE)
    write_spectrograms(tmp_path / "out" / "s.png", [[tone, tone[: RATE // 2]], [tone, tone]])
    width, height = struct.unpack(">II", (tmp_path / "out" / "s.png").read_bytes()[16:24])
    assert (width, height) == (2 * (101 + 6), 2 * (3 * 40 + 6))


def test_a_melody_has_a_dot_for_each_voiced_frame_and_its_sentence_is_named(
    tmp_path: Path,
) -> None:
    said = np.array([np.nan, 100.0, 110.0, np.nan])
    wanted = np.array([120.0, 120.0, 130.0, np.nan])
    panels = [
        Panel("Less < more & more.", "slt", Melodies(said, wanted, 0.71)),
        Panel("Silence.", "rms", Melodies(np.full(4, np.nan), np.full(4, np.nan), 0.0)),
    ]

    write_melodies(tmp_path / "m.svg", panels)

    root = ElementTree.parse(tmp_path / "m.svg").getroot()
    dots = root.findall(f"{SVG}circle")
    assert len(dots) == 5
    heights = {float(dot.get("cy", "0")) for dot in dots[:2]}
    assert len(heights) == 1  # two frames of one pitch
    assert float(dots[2].get("cy", "0")) < heights.pop()  # a higher one lies above
    texts = ["".join(text.itertext()) for text in root.findall(f"{SVG}text")]
    assert "slt: Less < more & more." in texts
    assert any(text.startswith("correlation 0.71") for text in texts)
