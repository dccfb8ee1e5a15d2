"""A take's name depends on all that its sound depends on, and on nothing else."""

from __future__ import annotations

from collections.abc import Mapping
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
    content_key,
    frame_cap,
    key_of,
)

CODES = np.arange(40, dtype=np.int16).reshape(10, 4)
SPEC = RenderSpec("Hello.", Reference("Said.", CODES), Sampling(seed=7))
ENGINE = EngineClass(
    model="m",
    sampler=2,
    numbers="float32 float32",
    backend="compiled avx2",
    strict=False,
    decoder="d",
    decoder_numbers="float32",
    decoder_backend="compiled avx2",
)
INPUTS = TakeInputs("Hello.", [["digest", "Said."]], Sampling(seed=7), ENGINE)
# For each input of a take another value; a field without one here fails the test below.
OTHERS: dict[type[Any], dict[str, list[Any]]] = {
    TakeInputs: {
        "spoken_text": ["Hello!", "hello."],
        "voices": [[], [["other", "Said."]], [["digest", "Said!"]], [["digest", "Said."]] * 2],
        "sampling": [Sampling(seed=8)],
        "engine": [replace(ENGINE, model="n")],
    },
    Sampling: {
        "seed": [8, 0],
        "temperature": [0.81],
        "top_p": [0.81],
        "top_k": [31],
        "max_frames": [1025],
    },
    EngineClass: {
        "model": ["n"],
        "sampler": [1, 3],
        "numbers": ["bfloat16 bfloat16", "float32 int8"],
        "backend": ["compiled avx512_bf16", "PyTorch AVX2 packed", "Triton sm_90"],
        "strict": [True],
        "decoder": ["e"],
        "decoder_numbers": ["tf32", "bfloat16"],
        "decoder_backend": ["PyTorch AVX2", "Triton sm_90"],
    },
}


def changed(inputs: TakeInputs, kind: type[Any], name: str, value: Any) -> TakeInputs:
    if kind is TakeInputs:
        return replace(inputs, **{name: value})
    holder = "sampling" if kind is Sampling else "engine"
    return replace(inputs, **{holder: replace(getattr(inputs, holder), **{name: value})})


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (kind, name, value)
        for kind, names in OTHERS.items()
        for name, values in names.items()
        for value in values
    ],
)
def test_any_other_input_gives_another_name(kind: type[Any], name: str, value: Any) -> None:
    assert key_of(changed(INPUTS, kind, name, value)) != key_of(INPUTS)


def test_every_input_of_a_take_has_another_value_here() -> None:
    def check(value: Any) -> None:
        kind = type(value)
        assert set(OTHERS[kind]) == {one.name for one in fields(kind)}, f"{kind.__name__} has grown"
        for one in fields(kind):
            if is_dataclass(inner := getattr(value, one.name)):
                check(inner)

    check(INPUTS)


def test_no_two_of_the_other_values_have_one_name() -> None:
    keys = [
        key_of(changed(INPUTS, kind, name, value))
        for kind, names in OTHERS.items()
        for name, values in names.items()
        for value in values
    ]

    assert len(set(keys)) == len(keys) - 2  # two of a nested value are there under its own name


def test_same_request_has_the_same_name() -> None:
    again = RenderSpec("Hello.", Reference("Said.", CODES.copy()), Sampling(seed=7))

    assert content_key(SPEC, ENGINE) == content_key(again, replace(ENGINE))


@pytest.mark.parametrize(
    "other",
    [
        replace(SPEC, text="Hello!"),
        replace(SPEC, reference=None),
        replace(SPEC, reference=Reference("Said!", CODES)),
        replace(SPEC, reference=Reference("Said.", CODES + np.int16(1))),
        replace(SPEC, reference=Reference("Said.", CODES.reshape(4, 10))),
        replace(SPEC, reference=(Reference("Said.", CODES), Reference("Said.", CODES))),
        replace(SPEC, sampling=Sampling(seed=8)),
    ],
    ids=lambda spec: "",
)
def test_any_other_request_has_another_name(other: RenderSpec) -> None:
    assert content_key(SPEC, ENGINE) != content_key(other, ENGINE)


@pytest.mark.parametrize(
    "stored", [{}, {"model": "m"}, asdict(ENGINE) | {"newer": 1}], ids=["none", "older", "newer"]
)
def test_what_a_worker_of_another_version_said_names_no_engine(stored: Mapping[str, Any]) -> None:
    assert EngineClass.of(stored) is None
    assert EngineClass.of(asdict(ENGINE)) == ENGINE


@pytest.mark.parametrize(
    ("length", "frames"),
    [(0, 64), (4, 64), (5, 70), (100, 640), (334, 2044), (335, 2048), (999, 2048)],
)
def test_frame_cap_grows_with_the_text_between_its_bounds(length: int, frames: int) -> None:
    assert frame_cap("x" * length) == frames
