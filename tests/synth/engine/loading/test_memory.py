"""Test memory: what is predicted is what a loaded engine holds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from synth.engine import Engine, EngineConfig
from synth.engine.loading.loaded_models import load_transformers
from synth.engine.loading.memory import (
    SLOT_PARTS,
    WEIGHT_PARTS,
    Demand,
    NumberFormats,
    find_demand,
    gigabytes,
    held_bytes,
    plan_memory,
)
from synth.engine.presets import preset
from tests.synth.engine.random_checkpoint import write_checkpoint

TINY = Path(__file__).parents[3] / "data" / "golden" / "tiny-s2"
GPU = NumberFormats(torch.bfloat16, torch.bfloat16, torch.float32, torch.float32, 2)


@pytest.fixture(scope="module")
def full() -> Demand:
    """The published shape in bfloat16; no weight of it exists here."""
    shape = preset("full")
    return find_demand(shape.config, shape.codec, GPU, max_positions=2048)


def test_the_published_shape_takes_what_its_parameters_say(full: Demand) -> None:
    transformers = sum(full.weights[n] for n in ("slow_weights", "fast_weights", "embeddings"))

    assert transformers == pytest.approx(2 * 4.56e9, rel=0.002)
    assert full.weights["head"] == 4097 * 2560 * 2
    assert full.slot["keys_and_values"] == 147_456 * 2048
    assert full.codec_frame_work == pytest.approx(5.3e6, rel=0.01)


def test_a_plan_grows_by_one_slot_at_a_time(full: Demand) -> None:
    plans = [plan_memory(full, slots=n, codec_frames=64, codec_work=10) for n in (1, 2, 64)]
    assert plans[1].total - plans[0].total == full.slot_bytes
    assert plans[2].total - plans[0].total == 63 * full.slot_bytes
    assert plans[0].total == plans[0].held + plans[0].work + plans[0].parts["reserve"]


def test_more_positions_than_the_model_has_are_not_counted() -> None:
    shape = preset("tiny")
    found = find_demand(shape.config, shape.codec, GPU, max_positions=10**6)
    assert found.max_positions == shape.config.text_config.max_seq_len


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_an_engine_holds_was_predicted(dtype: str) -> None:
    config = EngineConfig(TINY, device="cpu", dtype=dtype, slots=5, max_positions=1024, threads=1)

    engine = Engine.load(config)
    memory = engine.describe()["memory"]
    engine.close()

    assert memory["held"] == pytest.approx(memory["predicted_held"], rel=0.02)
    assert memory["slots"] == engine.slots == 5
    assert set(WEIGHT_PARTS) | set(SLOT_PARTS) < set(memory["predicted"])


def test_untied_and_wider_shapes_are_predicted(tmp_path: Path) -> None:
    write_checkpoint(
        tmp_path,
        text={"tie_word_embeddings": False, "attention_qkv_bias": True, "max_seq_len": 512},
        audio={"dim": 96, "n_head": 6, "n_local_heads": 2, "attention_o_bias": True},
    )
    config = EngineConfig(tmp_path, device="cpu", dtype="float32")
    floats = NumberFormats(torch.float32, torch.float32, torch.float32, torch.float32, 4)

    dual_ar, _ = load_transformers(config, torch.device("cpu"))
    demand = find_demand(dual_ar.config, preset("tiny").codec, floats, max_positions=512)

    parts = ("slow_weights", "fast_weights", "embeddings", "head", "tables")
    predicted = sum(demand.weights[name] for name in parts)
    assert held_bytes(dual_ar) == pytest.approx(predicted, rel=0.02)


def test_tensors_over_the_same_memory_are_held_once() -> None:
    base = torch.zeros(1000)
    assert held_bytes([base, base[10:20], {"again": base}], torch.zeros(5)) == 4020


def test_the_table_names_every_part_and_the_total(full: Demand) -> None:
    plan = plan_memory(full, slots=8, codec_frames=64, codec_work=2_000_000)

    lines = plan.table().splitlines()

    assert len(lines) == len(plan.parts) + 1
    assert any("keys and values of the slots" in line and "2.4 GB" in line for line in lines)
    assert lines[-1].startswith("8 slots of 2048 positions")
    assert lines[-1].endswith(gigabytes(plan.total))
