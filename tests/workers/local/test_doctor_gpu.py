"""What './tts doctor' and a worker's log say of a GPU, for devices that are not here."""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from pytest_django import Settings

from synth.engine import kernels
from synth.engine.errors import SlotsDoNotFitError
from synth.engine.loading import loaded_models
from synth.engine.slots import sizing
from synth.engine.slots.sizing import plan_engine
from workers.local import doctor_engine
from workers.local.doctor_engine import (
    PUBLISHED_CODEC,
    PUBLISHED_LM,
    look_at_device,
    look_at_memory,
    look_at_numbers,
)
from workers.process import engine_host

# What a build of PyTorch for CUDA 13 has code for.
BUILT = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]
NO_COMPILER = "Triton finds no C compiler; run apt-get install gcc libc6-dev, or set CC."
Have = Callable[..., None]


@pytest.fixture
def have(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Have:
    """Have a device of a capability and of GB in all, and a model of the published sizes."""

    def be_there(
        capability: tuple[int, int],
        gigabyte: float,
        *,
        dtype: str = "auto",
        compiles: str | None = None,
    ) -> None:
        total = int(gigabyte * 1e9)
        found = SimpleNamespace(
            name="A card",
            major=capability[0],
            minor=capability[1],
            total_memory=total,
            multi_processor_count=40,
        )
        for name, answer in {
            "is_available": True,
            "device_count": 1,
            "get_device_capability": capability,
            "get_device_properties": found,
            "mem_get_info": (total - doctor_engine.CONTEXT_BYTES, total),
            "get_arch_list": BUILT,
        }.items():
            monkeypatch.setattr(torch.cuda, name, lambda *_, said=answer: said)
        monkeypatch.setattr(kernels, "why_nothing_compiles", lambda: compiles)
        settings.DEVICE, settings.DTYPE = "auto", dtype
        settings.ENGINE_SLOTS = settings.ENGINE_MAX_POSITIONS = 0

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(kernels, "why_nothing_runs", lambda device: None)
    for module in (doctor_engine, sizing, loaded_models):
        monkeypatch.setattr(module, "load_config", lambda folder: PUBLISHED_LM)
    codec = SimpleNamespace(config=PUBLISHED_CODEC)
    monkeypatch.setattr(sizing, "open_codec", lambda folder: codec)
    return be_there


@pytest.mark.parametrize(
    ("capability", "gigabyte", "level", "numbers", "frames"),
    [
        ((7, 5), 15.8, "warn", "float16, plain", "PyTorch, slower: Triton kernels need compute"),
        ((7, 5), 9.4, "warn", "int8, int8-rows", "but this device has 7.5., captured as graphs"),
        ((8, 0), 42.3, "ok", "bfloat16, plain", "Triton's kernels, captured as graphs"),
        ((8, 6), 12.6, "ok", "int8, int8-rows", "Triton's kernels, captured as graphs"),
        ((8, 9), 25.3, "ok", "bfloat16, plain", "Triton's kernels, captured as graphs"),
        ((9, 0), 150, "ok", "bfloat16, plain", "Triton's kernels, captured as graphs"),
        ((12, 1), 120, "ok", "bfloat16, plain", "Triton's kernels, captured as graphs"),
    ],
)
def test_device_capability_numbers_kernels_and_graphs_are_said_by_doctor_and_at_the_start(
    have: Have,
    capability: tuple[int, int],
    gigabyte: float,
    level: str,
    numbers: str,
    frames: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    have(capability, gigabyte)
    device, found, memory = look_at_device(), look_at_numbers(), look_at_memory()

    version = ".".join(map(str, capability))
    assert device.level == "ok"
    assert f"cuda:0 A card, compute capability {version}" in device.text
    assert (found.level, found.text.startswith(f"{numbers} matrices")) == (level, True)
    assert frames in found.text
    assert memory.level == "ok", memory.text

    monkeypatch.setattr(loaded_models, "load_dual_ar", lambda *_, **how: (SimpleNamespace(), None))
    monkeypatch.setattr(loaded_models, "wants_kernels", lambda *_: False)
    with caplog.at_level(logging.INFO):
        loaded_models.load_transformers(engine_host.engine_config(), torch.device("cuda:0"))
    assert f"cuda:0 A card, compute capability {version}" in caplog.text
    assert f"numbers {numbers.partition(',')[0]} (" in caplog.text
    assert frames.replace(", captured", "; captured") in caplog.text


def test_device_that_pytorch_has_no_code_for_is_refused_and_the_advice_works(
    have: Have, settings: Settings
) -> None:
    have((7, 0), 17.2)
    found = look_at_device()
    assert found.level == "fail"
    assert "has code for sm_75, sm_80" in found.text
    assert "and none for the device A card, compute capability 7.0; set TTS_DEVICE" in found.text
    assert look_at_numbers().text == found.text
    assert found.text in look_at_memory().text
    advised = re.search(r"set TTS_DEVICE=(\w+)", found.text)
    assert advised is not None
    settings.DEVICE = advised[1]
    assert look_at_device().level == "ok"


def test_what_is_missing_for_kernels_is_named_with_the_command_that_brings_it(have: Have) -> None:
    have((9, 0), 150, compiles=NO_COMPILER)
    found = look_at_numbers()
    assert found.level == "warn"
    assert f"frames: PyTorch, slower: {NO_COMPILER}, captured as graphs" in found.text
    assert found.remedy.startswith("apt-get install gcc libc6-dev")


@pytest.mark.parametrize(
    ("gigabyte", "dtype", "advised"), [(11.5, "bfloat16", "int8-slow"), (8.9, "bfloat16", "int8")]
)
def test_numbers_that_leave_no_room_are_refused_with_some_that_fit(
    have: Have, gigabyte: float, dtype: str, advised: str
) -> None:
    have((8, 6), gigabyte, dtype=dtype)
    found = look_at_memory()
    assert found.level == "fail"
    assert found.text.endswith(f"Set TTS_DTYPE={advised}, with which it fits.")
    with pytest.raises(SlotsDoNotFitError, match=f"TTS_DTYPE={advised}"):
        plan_engine(engine_host.engine_config())

    have((8, 6), gigabyte, dtype=advised)
    assert look_at_memory().level == "ok"


@pytest.mark.parametrize(("gigabyte", "level"), [(6.2, "fail"), (8.4, "warn")])
def test_device_that_is_too_small_for_anything_is_refused_with_one_that_is_not(
    have: Have, gigabyte: float, level: str
) -> None:
    """Into 8.4 GB goes a slot of 120 positions, in which nobody can say a sentence."""
    have((8, 6), gigabyte)
    found = look_at_memory()
    enough = re.search(r"Use a device with (\d+) GB of free memory", found.text)
    assert (found.level, enough is not None) == (level, True), found.text
    assert "TTS_ENGINE_MAX_POSITIONS" not in found.text
    assert enough is not None
    have((8, 6), int(enough[1]) + doctor_engine.CONTEXT_BYTES / 1e9)
    assert look_at_memory().level == "ok"


@pytest.mark.parametrize(("gigabyte", "slots"), [(12, 8), (16, 16)])
def test_small_cards_have_slots_in_8_bits_beside_graphs_of_chunks(
    have: Have, gigabyte: float, slots: int
) -> None:
    have((8, 6), gigabyte, dtype="int8")
    plan = plan_engine(engine_host.engine_config())
    assert plan.parts["codec_graphs"] > 0
    assert plan.slots >= slots


@pytest.mark.parametrize("tenths", range(88, 340, 12))
def test_what_is_chosen_for_a_card_of_any_size_fits_it(have: Have, tenths: int) -> None:
    have((8, 6), tenths / 10)
    found = look_at_memory()
    assert found.level == "ok", found.text
