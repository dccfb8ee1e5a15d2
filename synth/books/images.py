"""Read an image's format and size from its first bytes, so that nothing too large is decoded."""

from __future__ import annotations

import struct
from typing import NamedTuple

_JPEG_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_JPEG_ALONE = {0x01, *range(0xD0, 0xD9)}


class ImageSize(NamedTuple):
    """Say what an image is: `format` is jpeg, png or webp; width and height in pixels."""

    format: str
    width: int
    height: int


def image_size(content: bytes) -> ImageSize | None:
    """Return what the header says; None of what is no JPEG, PNG or WebP, or is cut short."""
    try:
        if content[:8] == b"\x89PNG\r\n\x1a\n" and content[12:16] == b"IHDR":
            return ImageSize("png", *struct.unpack_from(">II", content, 16))
        if content[:3] == b"\xff\xd8\xff":
            return _jpeg(content)
        if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
            return _webp(content)
    except (struct.error, IndexError):
        return None
    return None


def _jpeg(content: bytes) -> ImageSize | None:
    """Walk the markers up to the frame header, which has the size."""
    at = 2
    while at + 4 <= len(content):
        if content[at] != 0xFF:
            return None
        marker = content[at + 1]
        if marker == 0xFF:
            at += 1
        elif marker in _JPEG_ALONE:
            at += 2
        elif marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", content, at + 5)
            return ImageSize("jpeg", width, height)
        else:
            at += 2 + int(struct.unpack_from(">H", content, at + 2)[0])
    return None


def _webp(content: bytes) -> ImageSize | None:
    kind = content[12:16]
    if kind == b"VP8X":
        width = int.from_bytes(content[24:27], "little") + 1
        return ImageSize("webp", width, int.from_bytes(content[27:30], "little") + 1)
    if kind == b"VP8L":
        bits = int(struct.unpack_from("<I", content, 21)[0])
        return ImageSize("webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if kind == b"VP8 ":
        width, height = struct.unpack_from("<HH", content, 26)
        return ImageSize("webp", width & 0x3FFF, height & 0x3FFF)
    return None
