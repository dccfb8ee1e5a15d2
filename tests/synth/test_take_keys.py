"""The key of a take is made of all that its sound depends on."""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest

from synth.contract import (
    EngineClass,
    Reference,
    RenderSpec,
    Sampling,
    TakeInputs,
    Turn,
    content_key,
    frame_cap,
    key_of,
)

CODES = np.arange(40, dtype=np.int16).reshape(10, 4)
SPEC = RenderSpec("Hello.", Reference("Said.", CODES), Sampling(seed=7))
ENGINE = EngineClass(
    model="m", sampler=2, numbers="float32 float32", backend="compiled avx2", strict=False,
    decoder="d", decoder_numbers="float32", decoder_backend="compiled avx2",
)  # fmt: skip
INPUTS = TakeInputs("Hello.", [["digest", "Said."]], Sampling(seed=7), ENGINE)
# For each input of a take another value; a field without one here fails the test below.
OTHERS: dict[type[Any], dict[str, list[Any]]] = {
    TakeInputs: {
        "spoken_text": ["Hello!", "hello."],
        "voices": [[], [["other", "Said."]], [["digest", "Said!"]], [["digest", "Said."]] * 2],
        "sampling": [Sampling(seed=8)],
        "engine": [replace(ENGINE, model="n")],
        "history": [("a",), ("b",), ("a", "b"), ("b", "a")],
    },
    Sampling: {
        "seed": [8, 0], "temperature": [0.81], "top_p": [0.81], "top_k": [31], "max_frames": [1025],
    },
    EngineClass: {
        "model": ["n"],
        "sampler": [1, 3],
        "numbers": ["bfloat16 bfloat16", "bfloat16 int8", "bfloat16 int8-slow", "bfloat16 fp8"],
        "backend": [
            "compiled avx512_bf16", "PyTorch AVX2 packed", "Triton sm_90 x132", "Triton sm_90 x114"
        ],
        "strict": [True],
        "decoder": ["e"],
        "decoder_numbers": ["tf32", "bfloat16"],
        "decoder_backend": ["PyTorch AVX2", "Triton sm_90 x132"],
    },
}  # fmt: skip


def changed(kind: type[Any], name: str, value: Any) -> str:
    """Return the name of a take with another value."""
    if kind is TakeInputs:
        return key_of(replace(INPUTS, **{name: value}))
    holder = "sampling" if kind is Sampling else "engine"
    return key_of(replace(INPUTS, **{holder: replace(getattr(INPUTS, holder), **{name: value})}))


def test_any_other_input_gives_another_name_and_no_two_have_one() -> None:
    keys = {
        (kind.__name__, name, str(value)): changed(kind, name, value)
        for kind, names in OTHERS.items()
        for name, values in names.items()
        for value in values
    }

    assert [one for one, key in keys.items() if key == key_of(INPUTS)] == []
    assert len(set(keys.values())) == len(keys) - 2  # two of a nested value stand here by its name


def test_every_input_of_a_take_has_another_value_here() -> None:
    def check(value: Any) -> None:
        kind = type(value)
        assert set(OTHERS[kind]) == {one.name for one in fields(kind)}, f"{kind.__name__} has grown"
        for one in fields(kind):
            if is_dataclass(inner := getattr(value, one.name)):
                check(inner)

    check(INPUTS)


def test_same_request_has_the_same_name_and_any_other_another() -> None:
    again = RenderSpec("Hello.", Reference("Said.", CODES.copy()), Sampling(seed=7))
    said = Reference("Said.", CODES)

    assert content_key(SPEC, ENGINE) == content_key(again, replace(ENGINE))
    for change in (
        {"text": "Hello!"},
        {"reference": None},
        {"reference": Reference("Said!", CODES)},
        {"reference": Reference("Said.", CODES + np.int16(1))},
        {"reference": Reference("Said.", CODES.reshape(4, 10))},
        {"reference": (said, said)},
        {"sampling": Sampling(seed=8)},
    ):
        assert content_key(SPEC, ENGINE) != content_key(replace(SPEC, **change), ENGINE), change


def test_what_a_worker_of_another_version_said_names_no_engine() -> None:
    for stored in ({}, {"model": "m"}, asdict(ENGINE) | {"newer": 1}):
        assert EngineClass.of(stored) is None
    assert EngineClass.of(asdict(ENGINE)) == ENGINE


def test_take_without_history_keeps_the_name_from_before_there_was_any() -> None:
    name = "b9d7751ccd6e138c0857670a23acd4bcf613eabec8eb0df3bbe574c0ed027398"
    assert key_of(INPUTS) == name


def test_name_holds_those_of_the_takes_before_it_and_each_has_one() -> None:
    after = replace(SPEC, history=(Turn("Said before.", CODES, "a" * 64),))

    assert content_key(after, ENGINE) != content_key(SPEC, ENGINE)
    other = replace(SPEC, history=(Turn("Said before.", CODES, "b" * 64),))
    assert content_key(after, ENGINE) != content_key(other, ENGINE)
    with pytest.raises(ValueError, match="no content key"):
        content_key(replace(SPEC, history=(Turn("Said before.", CODES),)), ENGINE)


def test_frame_cap_grows_with_the_text_between_its_bounds() -> None:
    caps = {0: 64, 4: 64, 5: 70, 100: 640, 334: 2044, 335: 2048, 999: 2048}
    assert {length: frame_cap("x" * length) for length in caps} == caps
