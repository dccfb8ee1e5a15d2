"""Write and read codes as safetensors objects that say what they are."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from synth.contract import CodesArray

_LENGTH = struct.Struct("<Q")


class CodesObjectError(Exception):
    """An object is not the codes that its row promises: damaged, cut short or of something else."""


def pack_codes(codes: CodesArray, **metadata: str | int) -> bytes:
    """Return codes int16 [K, T] as safetensors bytes with texts beside them."""
    values = {name: str(value) for name, value in metadata.items()}
    values["frames"] = str(codes.shape[1])
    packed: bytes = save({"codes": np.ascontiguousarray(codes, dtype=np.int16)}, metadata=values)
    return packed


def unpack_codes(content: bytes, expected: Mapping[str, str]) -> CodesArray:
    """Return the codes int16 [K, T], read-only, of an object whose texts are the `expected` ones.

    Raises:
        CodesObjectError: it is not that.
    """
    try:
        metadata = _metadata(content)
        codes = load(content)["codes"]
    except (SafetensorError, KeyError, ValueError, struct.error) as error:
        raise CodesObjectError(f"the object cannot be read: {type(error).__name__}") from error
    for name, value in expected.items():
        if metadata.get(name) != value:
            raise CodesObjectError(f"its {name} is {metadata.get(name)!r}, not {value!r}")
    if codes.dtype != np.int16 or codes.ndim != 2 or str(codes.shape[1]) != metadata.get("frames"):
        raise CodesObjectError(f"it holds {codes.dtype} {codes.shape}, not int16 [K, T]")
    codes.setflags(write=False)  # many segments share one array
    return codes


def _metadata(content: bytes) -> dict[str, str]:
    """Return the texts of a safetensors header: a length, then JSON."""
    (length,) = _LENGTH.unpack_from(content)
    header = json.loads(content[_LENGTH.size : _LENGTH.size + length])
    found: dict[str, str] = header.get("__metadata__", {})
    return found
