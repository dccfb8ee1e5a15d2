"""Prepare a book's cover: checked before it is decoded, shrunk where it is large, or made."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import av
import numpy as np

from synth.bookshelf.image_size import ImageSize, image_size
from workers.book_files.book_audio import BookFacts, BookFileError
from workers.book_files.cover_drawing import draw_cover

MAX_COVER_BYTES = 20 * 2**20
MAX_COVER_PIXELS = 25_000_000  # decoded it takes up to 100 MB
KEPT_PIXELS = 3000  # a side up to this is kept as it came
_SHRUNK_PIXELS = 2400
_CODECS = {"jpeg": "mjpeg", "png": "png", "webp": "webp"}
_MEDIA_TYPES = {"jpeg": "image/jpeg", "png": "image/png"}
_JPEG_QUALITY = 3  # of 2 (best) to 31


class CoverImage(NamedTuple):
    """Hold a cover that files can carry: a JPEG or a PNG."""

    media_type: str
    content: bytes

    @property
    def suffix(self) -> str:
        """Return the end of its file's name."""
        return ".png" if self.media_type == "image/png" else ".jpg"


def book_cover(given: bytes | None, facts: BookFacts) -> CoverImage:
    """Return the cover of a book: the given one, or one with its title where there is none.

    Raises:
        BookFileError: the given one is no image that can be used; the message says why.
    """
    if given is not None:
        return checked_cover(given)
    return CoverImage("image/jpeg", _to_jpeg(draw_cover(facts.title, ", ".join(facts.authors))))


def checked_cover(content: bytes) -> CoverImage:
    """Return a cover as files carry it; what its header says is checked before it is decoded.

    Raises:
        BookFileError: `cover_unreadable` or `cover_too_large`.
    """
    size = image_size(content)
    if size is None or size.width == 0 or size.height == 0:
        raise BookFileError(
            "cover_unreadable", "The cover is not a JPEG, PNG or WebP image; use a JPEG."
        )
    if len(content) > MAX_COVER_BYTES or size.width * size.height > MAX_COVER_PIXELS:
        raise BookFileError(
            "cover_too_large",
            f"The cover has {size.width} x {size.height} pixels and {len(content)} bytes; "
            f"at most {MAX_COVER_PIXELS} pixels and {MAX_COVER_BYTES} bytes are allowed. "
            "Use a smaller image.",
        )
    frame = _decoded(content, size)
    if size.format in _MEDIA_TYPES and max(size.width, size.height) <= KEPT_PIXELS:
        return CoverImage(_MEDIA_TYPES[size.format], content)
    scale = min(1.0, _SHRUNK_PIXELS / max(frame.width, frame.height))
    width, height = (max(2, round(side * scale / 2) * 2) for side in (frame.width, frame.height))
    small = frame.reformat(width=width, height=height, format="yuvj420p")
    return CoverImage("image/jpeg", _encoded(small))


def _decoded(content: bytes, size: ImageSize) -> Any:
    """Return the image as a frame; the decoder itself is bounded too, should the header lie."""
    decoder: Any = av.CodecContext.create(_CODECS[size.format], "r")
    decoder.options = {"max_pixels": str(MAX_COVER_PIXELS)}
    try:
        frames = [*decoder.decode(av.Packet(content)), *decoder.decode(None)]
    except (av.FFmpegError, ValueError) as error:
        frames, problem = [], error
        raise BookFileError(
            "cover_unreadable",
            "The cover is damaged: its image cannot be decoded. Upload it again.",
        ) from problem
    if not frames:
        raise BookFileError(
            "cover_unreadable",
            "The cover is damaged: its image cannot be decoded. Upload it again.",
        )
    return frames[0]


def _to_jpeg(pixels: Any) -> bytes:
    """Return an RGB picture, uint8 [height, width, 3], as JPEG."""
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
    return _encoded(frame.reformat(format="yuvj420p"))


def _encoded(frame: Any) -> bytes:
    encoder: Any = av.CodecContext.create("mjpeg", "w")
    encoder.width, encoder.height, encoder.pix_fmt = frame.width, frame.height, "yuvj420p"
    encoder.time_base = Fraction(1)
    encoder.options = {"qmin": "2", "qmax": str(_JPEG_QUALITY)}
    frame.pts = 0
    packets = [*encoder.encode(frame), *encoder.encode(None)]
    return b"".join(map(bytes, packets))
