"""Make a screenshot small enough for the documents: few colours, and no long empty part."""

from __future__ import annotations

import io
import struct
import zlib

import av
import numpy as np
from numpy.typing import NDArray

NUM_COLOURS = 64
EMPTY_ROWS = 120  # a longer run of equal rows is cut
KEPT_ROWS = 40


def small_png(content: bytes) -> bytes:
    """Return a PNG of the same picture with a palette, its long empty part cut."""
    with av.open(io.BytesIO(content), "r", format="png_pipe") as container:
        frame = next(container.decode(video=0))
    pixels = np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
    return _written(*_with_palette(_without_emptiness(pixels)))


def _without_emptiness(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the picture [H, W, 3] with its longest run of equal rows cut to KEPT_ROWS."""
    changes = np.flatnonzero((pixels[1:] != pixels[:-1]).any(axis=(1, 2))) + 1
    edges = np.concatenate(([0], changes, [len(pixels)]))
    longest = int(np.diff(edges).argmax())
    start, end = int(edges[longest]), int(edges[longest + 1])
    if end - start <= EMPTY_ROWS:
        return pixels
    return np.delete(pixels, slice(start + KEPT_ROWS, end), axis=0)


def _with_palette(pixels: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return indexes [H, W] and the commonest colours [N, 3], each pixel shown as the nearest."""
    colours, which, counts = np.unique(
        pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True
    )
    palette = colours[np.argsort(-counts, kind="stable")[:NUM_COLOURS]]
    nearest = np.concatenate(
        [
            ((some[:, None].astype(int) - palette[None]) ** 2).sum(axis=2).argmin(axis=1)
            for some in np.array_split(colours, max(1, len(colours) // 4096))
        ]
    )
    return nearest.astype(np.uint8)[which.reshape(-1)].reshape(pixels.shape[:2]), palette


def _written(indexes: NDArray[np.uint8], palette: NDArray[np.uint8]) -> bytes:
    """Return the bytes of a PNG of 8-bit indexes."""
    height, width = indexes.shape
    rows = np.zeros((height, width + 1), np.uint8)  # the first byte of a row: no filter
    rows[:, 1:] = indexes
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", palette.tobytes()),
        (b"IDAT", zlib.compress(rows.tobytes(), 9)),
        (b"IEND", b""),
    )
    parts = (
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
