"""Test sizing: as many slots as fit, and refusals that say what would."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from synth.engine import Engine, EngineConfig
from synth.engine.device import DeviceMemory
from synth.engine.errors import SlotsDoNotFitError
from synth.engine.loading.memory import Demand, NumberFormats, find_demand
from synth.engine.presets import preset
from synth.engine.slots.sizing import MIN_CODEC_FRAMES, plan_slots
from tests.synth.engine.loading.test_memory import GPU, TINY

FLOATS = NumberFormats(torch.float32, torch.float32, torch.float32, torch.float32, 4)


def demand(name: str, positions: int, formats: NumberFormats = GPU) -> Demand:
    shape = preset(name)
    return find_demand(shape.config, shape.codec, formats, max_positions=positions)


def device(gigabyte: float) -> DeviceMemory:
    size = int(gigabyte * 1e9)
    return DeviceMemory(size, size, "cuda:0")


def refusal(needed: Demand, memory: DeviceMemory, asked: int) -> str:
    with pytest.raises(SlotsDoNotFitError) as caught:
        plan_slots(needed, memory, "cuda", asked=asked)
    assert (caught.value.code, caught.value.retryable) == ("slots_do_not_fit", False)
    return str(caught.value)


@pytest.mark.parametrize("gigabyte", [16, 24, 48, 80, 141])
def test_what_is_planned_fits_and_one_slot_more_would_not(gigabyte: int) -> None:
    needed, memory = demand("full", 4096), device(gigabyte)

    plan = plan_slots(needed, memory, "cuda", most=10**6)

    assert plan.slots >= 1
    assert plan.total <= memory.free < plan.total + needed.slot_bytes


def test_a_large_device_gets_no_more_slots_than_it_is_good_for() -> None:
    assert plan_slots(demand("full", 2048), device(1000), "cuda").slots == 64
    assert plan_slots(demand("tiny", 512, FLOATS), device(1000), "cpu").slots == 16
    assert plan_slots(demand("tiny", 512, FLOATS), device(1000), "cpu", asked=100).slots == 100


def test_slots_that_do_not_fit_are_refused_with_numbers_that_are_right() -> None:
    memory = device(24)

    sentence = refusal(demand("full", 4096), memory, 64)

    found = re.fullmatch(
        "64 slots of 4096 positions need 39\\.9 GB, but cuda:0 has only [\\d.]+ GB left for "
        "them: the weights need 10\\.7 GB, working memory .* and the reserve 1\\.2 GB of "
        "24\\.0 GB free\\. Set TTS_ENGINE_SLOTS to (\\d+) or fewer, or "
        "TTS_ENGINE_MAX_POSITIONS to (\\d+) or fewer\\.",
        sentence,
    )
    assert found is not None, sentence
    fewer, shorter = int(found[1]), int(found[2])
    assert plan_slots(demand("full", 4096), memory, "cuda", asked=fewer).slots == fewer
    refusal(demand("full", 4096), memory, fewer + 1)
    assert plan_slots(demand("full", shorter), memory, "cuda", asked=64).slots == 64


def test_a_model_that_does_not_fit_at_all_is_refused_also_when_the_engine_may_choose() -> None:
    sentence = refusal(demand("full", 4096), device(9), 0)

    assert sentence.startswith(
        "The model does not fit into the memory of cuda:0: the weights need 10.7 GB"
    )
    assert "TTS_ENGINE_SLOTS" not in sentence


def test_one_slot_that_is_too_long_is_refused_with_the_length_that_fits() -> None:
    sentence = refusal(demand("full", 32_768), device(16), 0)

    found = re.search(r"Set TTS_ENGINE_MAX_POSITIONS to (\d+) or fewer", sentence)
    assert found is not None, sentence
    assert plan_slots(demand("full", int(found[1])), device(16), "cuda").slots >= 1


def test_little_memory_makes_the_codec_take_less_at_once_before_slots_are_refused() -> None:
    needed = demand("full", 4096)

    roomy = plan_slots(needed, device(141), "cuda")
    tight = plan_slots(needed, device(16), "cuda")

    assert roomy.codec_frames == 2048
    assert MIN_CODEC_FRAMES <= tight.codec_frames < 512
    container = DeviceMemory(700 * 2**20, 1024 * 2**20, "this container")
    assert plan_slots(demand("tiny", 4096, FLOATS), container, "cpu").slots >= 1


@pytest.mark.parametrize(("name", "frames"), [("full", 66), ("mid", 189), ("tiny", 189)])
def test_the_narrower_a_codec_the_more_frames_go_through_it_at_once_on_a_cpu(
    name: str, frames: int
) -> None:
    memory = DeviceMemory(64 * 2**30, 64 * 2**30, "this machine")

    plan = plan_slots(demand(name, 1024, FLOATS), memory, "cpu")

    assert plan.codec_frames == pytest.approx(frames, abs=2)


def test_kept_prefixes_take_their_budget_but_leave_most_of_a_small_device_to_slots() -> None:
    large = plan_slots(demand("full", 4096), device(80), "cuda", prefix_cache_bytes=10**9)
    small = plan_slots(
        demand("tiny", 4096, FLOATS), device(1), "cpu", asked=1, prefix_cache_bytes=10**9
    )

    assert large.parts["prefix_cache"] == 10**9
    assert 0 < small.parts["prefix_cache"] < 10**9 // 4


def test_an_engine_is_refused_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def loading(*_: object) -> None:
        raise AssertionError("weights were read")

    monkeypatch.setattr("synth.engine.engine.load_models", loading)
    memory = DeviceMemory(2 * 10**9, 2 * 10**9, "this container")
    monkeypatch.setattr("synth.engine.slots.sizing.find_memory", lambda _: memory)

    with pytest.raises(SlotsDoNotFitError, match=r"512 slots of 4096 positions need .* this cont"):
        Engine.load(EngineConfig(TINY, device="cpu", slots=512, max_positions=4096))


def test_an_engine_chooses_its_slots_and_renders_with_them(tmp_path: Path) -> None:
    engine = Engine.load(EngineConfig(TINY, device="cpu", slots=0, max_positions=256, threads=1))
    engine.warm_up()
    described = engine.describe()
    engine.close()

    assert described["slots"] == engine.slots == 16
