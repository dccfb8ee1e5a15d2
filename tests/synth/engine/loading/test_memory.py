"""Test what an engine takes: predicted as it is held, slots that fit, and refusals in numbers."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.bench.models.shapes import preset
from synth.engine import Engine, EngineConfig
from synth.engine.codec.streams import graph_bytes
from synth.engine.device import DeviceMemory
from synth.engine.errors import SlotsDoNotFitError
from synth.engine.loading.engine_config import FEWER_POSITIONS, Card, card_numbers
from synth.engine.loading.loaded_models import load_transformers
from synth.engine.loading.memory import (
    SLOT_PARTS,
    WEIGHT_PARTS,
    Demand,
    NumberFormats,
    find_demand,
    gigabytes,
    held_bytes,
)
from synth.engine.slots.sizing import (
    EIGHT_BIT_BYTES,
    MIN_CODEC_FRAMES,
    _demand_in,
    plan_slots,
)
from tests.synth.engine.engine_runs import TINY
from tests.synth.engine.random_checkpoint import write_checkpoint

GPU = NumberFormats(torch.bfloat16, torch.bfloat16, torch.float32, torch.float32, 2)
SERVED = replace(GPU, has_own_waves=True)
EIGHT_BITS = {
    "int8-slow": replace(GPU, matrix_bytes=EIGHT_BIT_BYTES["cuda"], fast_matrix_bytes=2),
    "int8": replace(GPU, matrix_bytes=EIGHT_BIT_BYTES["cuda"]),
}
FLOATS = NumberFormats(torch.float32, torch.float32, torch.float32, torch.float32, 4)


def demand(name: str, positions: int, formats: NumberFormats = GPU) -> Demand:
    """Return what a shape takes; no weight of it exists here."""
    shape = preset(name)
    return find_demand(shape.config, shape.codec, formats, max_positions=positions)


FULL, LONG, SMALL = demand("full", 2048), demand("full", 4096), demand("tiny", 4096, FLOATS)


def device(gigabyte: float) -> DeviceMemory:
    size = int(gigabyte * 1e9)
    return DeviceMemory(size, size, "cuda:0")


def refusal(needed: Demand, memory: DeviceMemory, asked: int) -> str:
    with pytest.raises(SlotsDoNotFitError) as caught:
        plan_slots(needed, memory, "cuda", asked=asked)
    assert (caught.value.code, caught.value.retryable) == ("slots_do_not_fit", False)
    return str(caught.value)


def test_the_published_shape_takes_what_its_parameters_say() -> None:
    transformers = sum(FULL.weights[n] for n in ("slow_weights", "fast_weights", "embeddings"))
    assert transformers == pytest.approx(2 * 4.56e9, rel=0.002)
    assert FULL.weights["head"] == 4112 * 2560 * 2  # 4,097 rows, filled up
    assert FULL.slot["keys_and_values"] == 147_456 * 2048
    assert FULL.codec_frame_work == pytest.approx(5.3e6, rel=0.01)
    # More positions than the model has are not counted.
    assert demand("tiny", 10**6).max_positions == preset("tiny").config.text_config.max_seq_len


def test_sixty_four_slots_of_the_published_shape_take_34_gb() -> None:
    needed, codec = demand("full", 2048, SERVED), preset("full").codec
    graphs = graph_bytes(codec, SERVED.decoder, needed.codec_frame_work)
    needed = replace(needed, codec_graphs=graphs)
    plan = plan_slots(needed, device(141), "cuda", asked=64, prefix_cache_bytes=10**9)
    assert plan.codec_frames == 512
    # The reserve is a share of the device, and not taken.
    assert plan.total - plan.parts["reserve"] <= 34e9


def test_a_plan_grows_by_one_slot_at_a_time_and_its_table_names_every_part() -> None:
    one, two, eight, many = (plan_slots(FULL, device(1000), "cuda", asked=n) for n in (1, 2, 8, 64))
    assert two.total - one.total == FULL.slot_bytes
    assert many.total - one.total == 63 * FULL.slot_bytes
    assert one.total == one.held + one.work + one.parts["reserve"]

    lines = eight.table().splitlines()
    assert len(lines) == len(eight.parts) + 1
    assert any("keys and values of the slots" in line and "2.4 GB" in line for line in lines)
    assert lines[-1].startswith("8 slots of 2048 positions")
    assert lines[-1].endswith(gigabytes(eight.total))


@pytest.mark.parametrize(
    ("changes", "slots"),
    [
        ({"dtype": "float32", "slots": 5, "max_positions": 1024}, 5),
        ({"dtype": "bfloat16", "slots": 5, "max_positions": 1024}, 5),
        ({"slots": 0, "max_positions": 256}, 16),  # as many as it chooses itself
    ],
)
def test_what_an_engine_holds_was_predicted(changes: dict[str, Any], slots: int) -> None:
    engine = Engine.load(EngineConfig(TINY, device="cpu", threads=1, **changes))
    memory = engine.describe()["memory"]
    engine.warm_up()
    engine.close()

    assert memory["held"] == pytest.approx(memory["predicted_held"], rel=0.02)
    assert memory["slots"] == engine.slots == slots
    assert set(WEIGHT_PARTS) | set(SLOT_PARTS) < set(memory["predicted"])


def test_untied_and_wider_shapes_are_predicted(tmp_path: Path) -> None:
    write_checkpoint(
        tmp_path,
        text={"tie_word_embeddings": False, "attention_qkv_bias": True, "max_seq_len": 512},
        audio={"dim": 96, "n_head": 6, "n_local_heads": 2, "attention_o_bias": True},
    )
    config = EngineConfig(tmp_path, device="cpu", dtype="float32")
    dual_ar, _ = load_transformers(config, torch.device("cpu"))
    found = find_demand(dual_ar.config, preset("tiny").codec, FLOATS, max_positions=512)

    parts = ("slow_weights", "fast_weights", "embeddings", "head", "tables")
    predicted = sum(found.weights[name] for name in parts)
    assert held_bytes(dual_ar) == pytest.approx(predicted, rel=0.02)
    base = torch.zeros(1000)  # memory that several tensors share is held once
    assert held_bytes([base, base[10:20], {"again": base}], torch.zeros(5)) == 4020


@pytest.mark.parametrize("dtype", ["int8", "fp8"])
@pytest.mark.parametrize(("gigabyte", "slots"), [(12, 8), (16, 16)])
def test_in_8_bits_the_published_shape_has_slots_on_small_cards(
    gigabyte: int, slots: int, dtype: str
) -> None:
    shape, card = preset("full"), Card("a card", (8, 9), gigabyte * 10**9)
    eight = _demand_in(
        card_numbers(dtype, card, shape.config),
        config=EngineConfig(
            Path(), codec_decode_dtype="float32", kernels="off", max_positions=FEWER_POSITIONS
        ),
        device=torch.device("cuda:0"),
        lm=shape.config,
        codec=shape.codec,
    )
    assert eight == demand("full", FEWER_POSITIONS, EIGHT_BITS["int8"])
    matrices = FULL.weights["slow_weights"] + FULL.weights["fast_weights"]
    assert eight.weights["slow_weights"] + eight.weights["fast_weights"] < 0.51 * matrices
    own = DeviceMemory(int((gigabyte - 0.6) * 1e9), int(gigabyte * 1e9), "cuda:0")  # its context
    assert plan_slots(eight, own, "cuda", prefix_cache_bytes=10**9).slots >= slots


@pytest.mark.parametrize("gigabyte", [16, 24, 48, 80, 141])
def test_what_is_planned_fits_and_one_slot_more_would_not(gigabyte: int) -> None:
    memory = device(gigabyte)
    plan = plan_slots(LONG, memory, "cuda", most=10**6)
    assert plan.slots >= 1
    assert plan.total <= memory.free < plan.total + LONG.slot_bytes


def test_a_large_device_gets_no_more_slots_than_it_is_good_for() -> None:
    assert plan_slots(FULL, device(1000), "cuda").slots == 64
    assert plan_slots(SMALL, device(1000), "cpu").slots == 16
    assert plan_slots(SMALL, device(1000), "cpu", asked=100).slots == 100


def test_slots_that_do_not_fit_are_refused_with_numbers_that_are_right() -> None:
    memory = device(24)

    sentence = refusal(LONG, memory, 64)

    found = re.fullmatch(
        "64 slots of 4096 positions need 39\\.8 GB, but cuda:0 has only [\\d.]+ GB left for "
        "them: the weights need 10\\.7 GB, working memory .* and the reserve 1\\.2 GB of "
        "24\\.0 GB free\\. Set TTS_ENGINE_SLOTS to (\\d+) or fewer, or "
        "TTS_ENGINE_MAX_POSITIONS to (\\d+) or fewer\\.",
        sentence,
    )
    assert found is not None, sentence
    fewer, shorter = int(found[1]), int(found[2])
    assert plan_slots(LONG, memory, "cuda", asked=fewer).slots == fewer
    refusal(LONG, memory, fewer + 1)
    assert plan_slots(demand("full", shorter), memory, "cuda", asked=64).slots == 64


def test_a_model_or_one_slot_that_does_not_fit_is_refused_also_when_the_engine_may_choose() -> None:
    smaller = {name: demand("full", 2048, each) for name, each in EIGHT_BITS.items()}
    for gigabyte, name in ((10.5, "int8-slow"), (8.2, "int8")):
        sentence = refusal(replace(FULL, smaller=smaller), device(gigabyte), 0)
        assert sentence.startswith(
            "The model does not fit into the memory of cuda:0: the weights need 10.7 GB"
        )
        assert sentence.endswith(f" Set TTS_DTYPE={name}, with which it fits.")
        assert plan_slots(smaller[name], device(gigabyte), "cuda").slots >= 1

    sentence = refusal(replace(FULL, smaller=smaller), device(6), 0)
    found = re.search(r"Use a device with (\d+) GB .* enough for it with TTS_DTYPE=int8", sentence)
    assert found is not None, sentence
    assert plan_slots(smaller["int8"], device(int(found[1])), "cuda").slots >= 1
    refusal(smaller["int8"], device(int(found[1]) - 1), 0)

    sentence = refusal(demand("full", 32_768), device(16), 0)
    found = re.search(r"Set TTS_ENGINE_MAX_POSITIONS to (\d+) or fewer", sentence)
    assert found is not None, sentence
    assert plan_slots(demand("full", int(found[1])), device(16), "cuda").slots >= 1


def test_little_memory_makes_the_codec_take_less_at_once_before_slots_are_refused() -> None:
    roomy, tight = (plan_slots(LONG, device(size), "cuda") for size in (141, 16))
    assert roomy.codec_frames == 512
    assert MIN_CODEC_FRAMES <= tight.codec_frames < 512
    container = DeviceMemory(700 * 2**20, 1024 * 2**20, "this container")
    assert plan_slots(SMALL, container, "cpu").slots >= 1


@pytest.mark.parametrize(("name", "frames"), [("full", 66), ("mid", 189), ("tiny", 189)])
def test_the_narrower_a_codec_the_more_frames_go_through_it_at_once_on_a_cpu(
    name: str, frames: int
) -> None:
    plan = plan_slots(demand(name, 1024, FLOATS), device(68.7), "cpu")
    assert plan.codec_frames == pytest.approx(frames, abs=2)


def test_kept_prefixes_take_their_budget_but_leave_most_of_a_small_device_to_slots() -> None:
    large = plan_slots(LONG, device(80), "cuda", prefix_cache_bytes=10**9)
    small = plan_slots(SMALL, device(1), "cpu", asked=1, prefix_cache_bytes=10**9)
    assert large.parts["prefix_cache"] == 10**9
    assert 0 < small.parts["prefix_cache"] < 10**9 // 4


def test_an_engine_is_refused_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("synth.engine.engine.load_models", None)
    memory = DeviceMemory(2 * 10**9, 2 * 10**9, "this container")
    monkeypatch.setattr("synth.engine.slots.sizing.find_memory", lambda _: memory)
    with pytest.raises(SlotsDoNotFitError, match=r"512 slots of 4096 positions need .* this cont"):
        Engine.load(EngineConfig(TINY, device="cpu", slots=512, max_positions=4096))
