"""An object of codes is believed only if it is whole and says what its row says."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import load, save

from workers.rendering.codes import CodesObjectError, pack_codes, unpack_codes

CODES = np.arange(30, dtype=np.int16).reshape(10, 3)
EXPECTED = {"clip": "a" * 64, "codec": "b" * 64}


def test_codes_come_back_as_they_were() -> None:
    content = pack_codes(CODES, **EXPECTED, resampler="builtin")

    codes = unpack_codes(content, EXPECTED | {"frames": "3"})

    assert codes.dtype == np.int16
    assert np.array_equal(codes, CODES)
    assert not codes.flags.writeable


def test_object_is_plain_safetensors() -> None:
    assert np.array_equal(load(pack_codes(CODES, **EXPECTED))["codes"], CODES)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"short",
        b"\xff" * 200,
        pack_codes(CODES, **EXPECTED)[:-1],
        pack_codes(CODES, clip="c" * 64, codec="b" * 64),
        pack_codes(CODES),
        save({"codes": CODES.astype(np.int32)}, metadata=EXPECTED | {"frames": "3"}),
        save({"codes": CODES[0]}, metadata=EXPECTED | {"frames": "3"}),
        save({"other": CODES}, metadata=EXPECTED | {"frames": "3"}),
    ],
    ids=["empty", "short", "noise", "cut", "other clip", "bare", "int32", "one row", "no codes"],
)
def test_what_is_not_those_codes_is_refused(content: bytes) -> None:
    with pytest.raises(CodesObjectError):
        unpack_codes(content, EXPECTED)
