"""What every row carries, bytes and operations by hand, and a report as JSON, table and picture."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from lab.bench.machine import Series, copy_bandwidth, make_row, matmul_rate, run_facts, run_windows
from lab.bench.models.shapes import preset
from lab.bench.report import Plot, Report, check_plot, draw_plot
from lab.bench.roofline import (
    floor_seconds,
    frame_cost,
    layer_weights,
    position_bytes,
    prefill_flops,
)
from synth.engine.errors import InvalidSpecError

CPU = torch.device("cpu")


def test_a_run_names_what_its_figures_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = run_facts(CPU, seed=7, preset="tiny")
    assert (facts["seed"], facts["torch"]) == (7, torch.__version__)
    assert facts["cpu_class"] in ("bf16", "avx2")
    assert facts["threads"] == torch.get_num_threads()
    assert facts["copy_gigabytes_per_second"] > 0.1
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")  # libraries held to it
    assert run_facts(CPU, seed=0, preset=None)["cpu_class"] == "avx2"


def test_speeds_are_measured_in_plausible_sizes() -> None:
    assert copy_bandwidth(CPU) > 1e8
    before = torch.get_float32_matmul_precision()
    for dtype in ("float32", "tf32"):
        assert (matmul_rate(CPU, dtype) or 0) > 1e8
    assert torch.get_float32_matmul_precision() == before
    assert matmul_rate(CPU, "int8") is None


def test_a_figure_without_meaning_needs_a_reason() -> None:
    facts = {"device": "cpu", "torch": "2", "threads": 1, "commit": None}
    values = {"frames_per_second": 2.0, "ratio_to_roofline": 0.5}
    reason = {"ratio_to_baseline": "not measured"}
    row = make_row(facts, values, why_null=reason)
    assert row["ratio_to_baseline"] is None
    assert row["why_null"] == reason
    assert {"dtype", "batch", "context", "cache_length", "commit"} <= row.keys()
    with pytest.raises(ValueError, match="ratio_to_baseline"):
        make_row(facts, values, why_null={})


class _Worker:
    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self._log = name, log

    def prepare(self) -> None:
        self._log.append(f"prepare {self.name}")

    def work(self) -> int:
        self._log.append(self.name)
        return 5


def test_contenders_take_turns_after_one_round_that_does_not_count() -> None:
    log: list[str] = []
    answer: list[str] = []

    workers = [_Worker(name, log) for name in "ab"]
    series = run_windows(workers, windows=2, device=CPU, progress=answer.append)

    assert log == ["prepare a", "a", "prepare b", "b"] * 3
    assert [len(one.rates) for one in series] == [2, 2]
    assert len(answer) == 4


def test_the_ratio_is_the_median_of_the_windows_with_its_extremes() -> None:
    ours = Series([30.0, 3.0, 33.0])
    ratio = ours.ratio_to(Series([10.0, 1.0, 11.0]))  # a disturbance of both leaves it alone
    assert (ratio.median, ratio.low, ratio.high, ours.median()) == (3.0, 3.0, 3.0, 30.0)
    ratio = Series([10.0, 40.0, 30.0]).ratio_to(Series([10.0, 10.0, 10.0]))
    assert (ratio.low, ratio.median, ratio.high) == pytest.approx((1.0, 3.0, 4.0))


FULL_LAYER = 2560 * (32 + 16) * 128 + 4096 * 2560 + 3 * 2560 * 9728
FULL_WEIGHTS = 36 * FULL_LAYER + 4097 * 2560 + 9 * (4 * FULL_LAYER + 4096 * 2560)


def test_a_layer_and_a_position_of_the_published_shape() -> None:
    text = preset("full").config.text_config
    assert layer_weights(text) == FULL_LAYER == 100_925_440
    assert position_bytes(text, "bfloat16") == 147_456


def test_a_frame_reads_the_slow_weights_once_and_the_fast_ones_nine_times() -> None:
    cost = frame_cost(
        preset("full").config, weight_dtype="bfloat16", kv_dtype="bfloat16", batch=1, context=2048
    )
    assert cost.weight_bytes == 2 * FULL_WEIGHTS == 14_742_983_680
    assert cost.kv_bytes == 2048 * 147_456
    assert cost.num_bytes == 2 * FULL_WEIGHTS + 2048 * 147_456


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2), ("int8", 1)])
def test_weights_take_their_formats_bytes_and_each_stream_its_own_keys(
    dtype: str, size: int
) -> None:
    config = preset("tiny").config
    # tiny: 64 * 16 * (4 + 2 + 2 + 4) for attention, 3 * 64 * 160 and 3 * 64 * 96 behind it
    slow, fast = 2 * (12_288 + 30_720), 2 * (12_288 + 18_432)
    weights = slow + 257 * 64 + 9 * (fast + 256 * 64)
    cost = frame_cost(config, weight_dtype=dtype, kv_dtype="float32", batch=3, context=100)
    assert cost.weight_bytes == size * weights
    assert cost.kv_bytes == 3 * 100 * (2 * 2 * 2 * 16) * 4
    attended = 2 * 2 * (4 * 16) * 100  # scores and mixing, of two layers
    assert cost.flops == 3 * 2 * (weights + fast + attended)


def test_a_prompt_behind_a_cached_voice_skips_the_voices_products_but_sees_it() -> None:
    config = preset("tiny").config
    layers = 2 * (12_288 + 30_720)
    pairs = 4 * 2 * 4 * 16
    whole = prefill_flops(config, tokens=30, start=0)
    behind = prefill_flops(config, tokens=10, start=20)
    assert whole == 2 * 30 * layers + pairs * (30 * 31 // 2)
    assert behind == 2 * 10 * layers + pairs * (10 * 20 + 10 * 11 // 2)
    assert behind == whole - prefill_flops(config, tokens=20, start=0)


def test_the_floor_is_what_takes_longer() -> None:
    assert floor_seconds(100, 10, 50.0, 20.0) == (2.0, "memory")
    assert floor_seconds(100, 100, 50.0, 20.0) == (5.0, "arithmetic")
    assert floor_seconds(100, 100, 50.0, None) == (2.0, "memory")


ROWS = (
    {"batch": 1, "dtype": "float32", "frames_per_second": 9.87654, "reason": None},
    {"batch": 16, "dtype": "float32", "frames_per_second": 12345.6, "reason": "none"},
)


def _report(plot: Plot | None = None) -> Report:
    columns = ("batch", "frames_per_second", "reason")
    return Report("ar", {"preset": "tiny", "seed": 0}, ROWS, columns, plot)


def test_json_has_the_facts_and_every_key_of_the_rows() -> None:
    content = json.loads(_report().as_json())
    assert (content["name"], content["seed"]) == ("ar", 0)
    assert content["rows"] == list(ROWS)
    with pytest.raises(ValueError, match="JSON"):
        Report("ar", {"speed": float("nan")}, (), ()).as_json()


def test_the_table_is_aligned_on_the_right() -> None:
    *_, heading, first, second = _report().as_table().splitlines()
    assert heading.split() == ["batch", "frames_per_second", "reason"]
    assert first.split() == ["1", "9.877", "-"]
    assert second.split() == ["16", "12345.6", "none"]
    assert len({len(line) for line in (heading, first, second)}) == 1


@pytest.mark.parametrize(
    ("name", "has_library", "sentence"),
    [
        ("ar.svg", True, "PNG files"),
        ("none/ar.png", True, "is not a folder"),
        ("ar.png", False, r"pip install -c constraints\.txt matplotlib"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_told_before_anything_is_measured(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    has_library: bool,
    sentence: str,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: has_library or None)
    with pytest.raises(InvalidSpecError, match=sentence):
        check_plot(tmp_path / name)
    with pytest.raises(InvalidSpecError, match="has no picture"):  # a report without axes
        draw_plot(_report(), tmp_path / "ar.png")


def test_the_rows_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "ar.png"
    draw_plot(_report(Plot("batch", "frames_per_second", ("dtype",))), path)
    assert path.read_bytes().startswith(b"\x89PNG")
