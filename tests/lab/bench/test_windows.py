"""Contenders take turns, and ratios are of neighbouring windows."""

from __future__ import annotations

import pytest
import torch

from lab.bench.windows import Series, run_windows


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
    told: list[str] = []

    series = run_windows(
        [_Worker("a", log), _Worker("b", log)],
        windows=2,
        device=torch.device("cpu"),
        progress=told.append,
    )

    assert log == ["prepare a", "a", "prepare b", "b"] * 3
    assert [len(one.rates) for one in series] == [2, 2]
    assert len(told) == 4


def test_a_disturbance_of_both_leaves_the_ratio_alone() -> None:
    ours, base = Series([30.0, 3.0, 33.0]), Series([10.0, 1.0, 11.0])

    ratio = ours.ratio_to(base)

    assert (ratio.median, ratio.low, ratio.high) == (3.0, 3.0, 3.0)
    assert ours.median() == 30.0


def test_the_ratio_is_the_median_of_the_windows_with_its_extremes() -> None:
    ratio = Series([10.0, 40.0, 30.0]).ratio_to(Series([10.0, 10.0, 10.0]))

    assert (ratio.low, ratio.median, ratio.high) == pytest.approx((1.0, 3.0, 4.0))
