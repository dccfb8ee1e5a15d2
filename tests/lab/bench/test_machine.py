"""What a run says of its machine, and what every row must carry."""

from __future__ import annotations

import pytest
import torch

from lab.bench.machine import Series, copy_bandwidth, make_row, matmul_rate, run_facts, run_windows

CPU = torch.device("cpu")


def test_libraries_held_to_avx2_make_an_avx2_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert run_facts(CPU, seed=0, preset=None)["cpu_class"] == "avx2"


def test_a_run_names_what_its_figures_depend_on() -> None:
    facts = run_facts(CPU, seed=7, preset="tiny")

    assert facts["seed"] == 7
    assert facts["cpu_class"] in ("bf16", "avx2")
    assert facts["torch"] == torch.__version__
    assert facts["threads"] == torch.get_num_threads()
    assert facts["copy_gigabytes_per_second"] > 0.1


def test_speeds_are_measured_in_plausible_sizes() -> None:
    assert copy_bandwidth(CPU) > 1e8
    rate = matmul_rate(CPU, "float32")
    assert rate is not None
    assert rate > 1e8
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


def test_a_rate_of_tf32_leaves_the_products_precision_as_it_was() -> None:
    before = torch.get_float32_matmul_precision()
    assert matmul_rate(CPU, "tf32") is not None
    assert torch.get_float32_matmul_precision() == before


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

    series = run_windows(
        [_Worker("a", log), _Worker("b", log)],
        windows=2,
        device=torch.device("cpu"),
        progress=answer.append,
    )

    assert log == ["prepare a", "a", "prepare b", "b"] * 3
    assert [len(one.rates) for one in series] == [2, 2]
    assert len(answer) == 4


def test_a_disturbance_of_both_leaves_the_ratio_alone() -> None:
    ours, base = Series([30.0, 3.0, 33.0]), Series([10.0, 1.0, 11.0])
    ratio = ours.ratio_to(base)
    assert (ratio.median, ratio.low, ratio.high) == (3.0, 3.0, 3.0)
    assert ours.median() == 30.0


def test_the_ratio_is_the_median_of_the_windows_with_its_extremes() -> None:
    ratio = Series([10.0, 40.0, 30.0]).ratio_to(Series([10.0, 10.0, 10.0]))
    assert (ratio.low, ratio.median, ratio.high) == pytest.approx((1.0, 3.0, 4.0))
