"""The fast AR alone: the floor under it, by hand, and the codes of a whole frame."""

from __future__ import annotations

import pytest
import torch

from lab.bench import fast
from lab.bench.presets import preset_dual_ar
from synth.engine.presets import preset
from tests.lab.bench.bench_options import run


def test_a_row_has_the_time_and_the_floor_of_nine_passes() -> None:
    report = run(fast, "--batch", "1,2", "--frames", "2", "--windows", "1", "--dtype", "float32")

    layers, head = 2 * (64 * 16 * 12 + 3 * 64 * 96), 256 * 64  # two layers of the tiny shape
    num_bytes = 4 * 9 * (layers + head)
    copy = report.facts["copy_gigabytes_per_second"] * 1e9
    assert [row["batch"] for row in report.rows] == [1, 2]
    row = report.rows[0]
    assert row["floor_milliseconds"] >= 1000 * num_bytes / copy * (1 - 1e-9)
    assert row["ratio_to_roofline"] == pytest.approx(
        row["floor_milliseconds"] / row["milliseconds"]
    )
    assert row["graphs"] == "off"


def test_a_frame_is_filled_as_the_engine_does_it() -> None:
    model = preset_dual_ar(preset("tiny"), device=torch.device("cpu"), dtype="float32")
    case = fast._Case(model, 3, False, 1, 0)

    codes = case.fill()

    assert codes.shape == (3, 10)
    cache = model.fast.allocate_cache(3)
    with torch.inference_mode():
        logits = model.fast.first(case.hidden, codes[:, 0], cache)
        assert torch.equal(logits.argmax(-1), codes[:, 1])
        assert torch.equal(model.fast.next(codes[:, 1], 2, cache).argmax(-1), codes[:, 2])
