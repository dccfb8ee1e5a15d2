"""Training goes on exactly where it was stopped, and keeps to its budget."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lab.training.shards import RunFolder
from lab.training.trainer import Budget, rate_at, train


class Line:
    """Fit one number; every batch depends on the step alone."""

    name = "line"

    def __init__(self, stop_at: int | None = None) -> None:
        self.network = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.network.weight)
        self._stop_at = stop_at

    def losses(self, step: int, progress: float) -> Mapping[str, Tensor]:
        """Return the squared distance from 3 at this step's place."""
        if step == self._stop_at:
            raise KeyboardInterrupt
        x = 1 + torch.rand(1, 1, generator=torch.Generator().manual_seed(step))
        return {"loss": (self.network(x) - 3 * x).square().mean()}


def quiet(line: str) -> None:
    """Drop a line of progress."""


def test_the_loss_falls_and_is_written_down(tmp_path: Path) -> None:
    run, line = RunFolder(tmp_path), Line()

    done = train(line, run, Budget(minutes=0.01, rate=0.1, report_every=5), quiet)

    rows = run.read_losses("line")
    assert done
    assert rows[-1]["loss"] < 0.5 * rows[0]["loss"]
    assert [row["step"] for row in rows[:3]] == [5, 10, 15]


def test_a_stopped_sitting_resumes_with_weights_step_and_optimiser(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    first, second = Line(), Line(stop_at=0)
    budget = Budget(minutes=5, rate=0.1, sitting_minutes=0.005)

    assert not train(first, run, budget, quiet)
    assert not train(second, run, Budget(minutes=5, rate=0.1, sitting_minutes=0), quiet)

    assert torch.equal(first.network.weight, second.network.weight)
    state = run.load("line-state")
    assert state["step"] > 0
    assert state["optimiser"]["state"][0]["step"] == state["step"]


def test_a_batch_that_gives_nan_changes_no_weight(tmp_path: Path) -> None:
    class Broken(Line):
        def losses(self, step: int, progress: float) -> Mapping[str, Tensor]:
            return {"loss": self.network(torch.full((1, 1), float("nan"))).sum()}

    broken = Broken()
    train(broken, RunFolder(tmp_path), Budget(minutes=0.0005, rate=0.1), quiet)

    assert float(broken.network.weight) == 0


@pytest.mark.parametrize(("progress", "share"), [(0.0, 1.0), (0.5, 0.515), (1.0, 0.03)])
def test_the_rate_falls_by_half_a_cosine(progress: float, share: float) -> None:
    assert rate_at(1000, progress) == pytest.approx(share, abs=1e-3)
    assert rate_at(0, progress) == pytest.approx(share / 100, abs=1e-3)
