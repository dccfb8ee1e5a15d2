"""Check codes that come from outside: a safetensors object, read without the engine or its library.

Only what a worker would itself have written is taken, so that a worker can use it as its own.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from voices.portable.archive import ImportRefusedError

MAX_CODES_BYTES = 4_000_000
MAX_CODEBOOKS = 64
MAX_FRAMES = 20_000
_LENGTH = struct.Struct("<Q")
_MAX_HEADER_BYTES = 4096
_TEXTS = {"clip", "codec", "frames", "resampler"}


@dataclass(frozen=True)
class CheckedCodes:
    """Codes that are whole: their object's bytes, and what it says of itself."""

    content: bytes
    clip_fingerprint: str
    codec_fingerprint: str
    codebooks: int
    frames: int
    resampler: str


def check_codes(content: bytes) -> CheckedCodes:
    """Return what an object of codes int16 [K, T] holds.

    Raises:
        ImportRefusedError: codes_too_large (413) or codes_invalid.
    """
    if len(content) > MAX_CODES_BYTES:
        message = f"A file of codes may have at most {MAX_CODES_BYTES} bytes."
        raise ImportRefusedError("codes_too_large", message)
    header, data = _split(content)
    texts = header.pop("__metadata__", None)
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise _invalid("the metadata do not name the clip and the codec")
    if set(texts) != _TEXTS or len(texts["resampler"]) > 20:
        raise _invalid(f"the metadata must be {', '.join(sorted(_TEXTS))}, and nothing else")
    codebooks, frames = _shape(header, data)
    if texts["frames"] != str(frames):
        raise _invalid(
            f"the codes have {frames} frames, but the metadata say {texts['frames']!r:.20}"
        )
    if np.frombuffer(data, dtype="<i2").min() < 0:
        raise _invalid("the codes contain negative numbers")
    return CheckedCodes(
        content, texts["clip"], texts["codec"], codebooks, frames, texts["resampler"]
    )


def _split(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header's members and the bytes behind it."""
    if len(content) < _LENGTH.size:
        raise _invalid("the file is not a safetensors file")
    (length,) = _LENGTH.unpack_from(content)
    end = _LENGTH.size + length
    if length > _MAX_HEADER_BYTES or end > len(content):
        raise _invalid("the safetensors file is cut short")
    try:
        header = json.loads(content[_LENGTH.size : end].decode())
    except (ValueError, RecursionError) as error:
        raise _invalid("the header is not JSON") from error
    if not isinstance(header, dict):
        raise _invalid("the header is not an object")
    return header, content[end:]


def _shape(header: dict[str, Any], data: bytes) -> tuple[int, int]:
    """Return K and T of the one tensor, which fills the bytes exactly."""
    tensor = header.get("codes")
    if set(header) != {"codes"} or not isinstance(tensor, dict):
        raise _invalid("the file must hold one tensor, `codes`")
    shape = tensor.get("shape")
    if tensor.get("dtype") != "I16" or not isinstance(shape, list) or len(shape) != 2:
        raise _invalid("the tensor `codes` is not int16 [K, T]")
    if not all(type(size) is int for size in shape):
        raise _invalid("the shape of `codes` is not made of whole numbers")
    codebooks, frames = shape
    if not (1 <= codebooks <= MAX_CODEBOOKS and 1 <= frames <= MAX_FRAMES):
        raise _invalid(
            f"there are {codebooks} codebooks of {frames} frames; at most {MAX_CODEBOOKS} "
            f"codebooks of {MAX_FRAMES} frames are allowed"
        )
    if tensor.get("data_offsets") != [0, len(data)] or len(data) != 2 * codebooks * frames:
        raise _invalid("the header does not fit the file's length")
    return codebooks, frames


def _invalid(why: str) -> ImportRefusedError:
    return ImportRefusedError("codes_invalid", f"The codes cannot be used: {why}.")
