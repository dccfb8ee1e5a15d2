"""Check codes that come from outside: a safetensors object, read without the engine or its library.

Only what a worker would itself have written is taken, so that a worker can use it as its own.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from voices.portable.errors import ImportRefusedError

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
        message = f"Codes have {MAX_CODES_BYTES} bytes at most."
        raise ImportRefusedError("codes_too_large", message, status=413)
    header, data = _split(content)
    texts = header.pop("__metadata__", None)
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise _invalid("they do not say which clip and codec they are of")
    if set(texts) != _TEXTS or len(texts["resampler"]) > 20:
        raise _invalid(f"their metadata are not {', '.join(sorted(_TEXTS))}")
    codebooks, frames = _shape(header, data)
    if texts["frames"] != str(frames):
        raise _invalid(f"they have {frames} frames and say {texts['frames']!r:.20}")
    if np.frombuffer(data, dtype="<i2").min() < 0:
        raise _invalid("they hold negative numbers")
    return CheckedCodes(
        content, texts["clip"], texts["codec"], codebooks, frames, texts["resampler"]
    )


def _split(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the header's members and the bytes behind it."""
    if len(content) < _LENGTH.size:
        raise _invalid("they are not a safetensors file")
    (length,) = _LENGTH.unpack_from(content)
    end = _LENGTH.size + length
    if length > _MAX_HEADER_BYTES or end > len(content):
        raise _invalid("they are not a whole safetensors file")
    try:
        header = json.loads(content[_LENGTH.size : end].decode())
    except (ValueError, RecursionError) as error:
        raise _invalid("their header is not JSON") from error
    if not isinstance(header, dict):
        raise _invalid("their header is not an object")
    return header, content[end:]


def _shape(header: dict[str, Any], data: bytes) -> tuple[int, int]:
    """Return K and T of the one tensor, which fills the bytes exactly."""
    tensor = header.get("codes")
    if set(header) != {"codes"} or not isinstance(tensor, dict):
        raise _invalid("they hold other tensors than `codes`")
    shape = tensor.get("shape")
    if tensor.get("dtype") != "I16" or not isinstance(shape, list) or len(shape) != 2:
        raise _invalid("they are not int16 [K, T]")
    if not all(type(size) is int for size in shape):
        raise _invalid("their shape is not made of whole numbers")
    codebooks, frames = shape
    if not (1 <= codebooks <= MAX_CODEBOOKS and 1 <= frames <= MAX_FRAMES):
        raise _invalid(
            f"{codebooks} codebooks of {frames} frames; at most {MAX_CODEBOOKS} of {MAX_FRAMES}"
        )
    if tensor.get("data_offsets") != [0, len(data)] or len(data) != 2 * codebooks * frames:
        raise _invalid("their header and their length do not agree")
    return codebooks, frames


def _invalid(why: str) -> ImportRefusedError:
    return ImportRefusedError("codes_invalid", f"The codes are not to be used: {why}.")
