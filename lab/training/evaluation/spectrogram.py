"""Draw spectrograms side by side into a PNG, with nothing but the standard library and numpy."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lab.training.evaluation.content import log_mel

_GAP = 6  # pixels between pictures
_ZOOM = 2  # pixels of a mel band
_DECADES = 3.5  # from white to black


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
