"""A run's files are whole, training goes on where it stopped, commands say what is wrong."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from django.core.management import call_command
from torch import Tensor, nn

from lab.training.arguments import PLAN_NAMES, STAGES, add_arguments
from lab.training.main import has_fallen, minutes_of, run
from lab.training.plans import PLANS, settle_plan
from lab.training.run_folder import RunFolder, RunFolderError
from lab.training.stages.running import (
    TRAINED,
    GateError,
    Options,
    check_gate,
    missed_gates,
    run_stage,
)
from lab.training.trainer import Budget, rate_at, train, write_curves


def test_what_is_saved_comes_back_also_behind_an_interrupted_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(tmp_path / "new")
    run.save("quantizer", {"rows": torch.arange(3), "names": ["a"]})
    assert run.load("quantizer")["rows"].tolist() == [0, 1, 2]
    assert run.has("quantizer")
    assert not list(run.path.glob("*.partial"))

    run.save("lm-state", {"step": 1})
    monkeypatch.setattr(torch, "save", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run.save("lm-state", {"step": 2})
    assert run.load("lm-state")["step"] == 1


def test_a_missing_result_names_its_stage_and_half_a_line_is_left_out(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="--stage encoder"):
        RunFolder(tmp_path).load("encoder-state")
    run = RunFolder(tmp_path)
    run.append_losses("lm", {"step": 1, "loss": 2.0})
    with (tmp_path / "lm.losses.jsonl").open("a") as file:
        file.write('{"step": 2, "lo')
    assert run.read_losses("lm") == [{"step": 1, "loss": 2.0}]


def test_curves_show_every_loss(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    write_curves(run, "lm")
    assert not (tmp_path / "lm.svg").exists()
    for step in range(3):
        run.append_losses("lm", {"step": step, "seconds": step * 10.0, "loss": 3.0 - step})
    write_curves(run, "lm")
    svg = (tmp_path / "lm.svg").read_text()
    assert svg.count("<polyline") == 1
    assert "loss: 3 to 1" in svg


def test_a_gate_is_missed_until_the_losses_are_below_it(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert missed_gates(run, "decoder") == ["decoder has not been trained"]

    run.append_losses("decoder", {"mel": 0.01, "wave": 0.9})
    assert len(missed_gates(run, "decoder")) == 1
    for _ in range(4):
        run.append_losses("decoder", {"mel": 0.01, "wave": 0.1})
    assert missed_gates(run, "decoder") == missed_gates(run, "data") == []

    lines: list[str] = []
    with pytest.raises(GateError, match="has not been trained"):
        check_gate("lm", run, Options(CPU, minutes=1), lines.append)
    check_gate("lm", run, Options(CPU, minutes=1, force=True), lines.append)
    assert lines == ["gate missed: lm has not been trained"]


def test_a_folder_keeps_its_plan(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert settle_plan(run, "toy", frozen_blocks=None) == PLANS["toy"]
    assert settle_plan(run, None, frozen_blocks=2).encoder.frozen_blocks == 2
    with pytest.raises(RunFolderError, match="started with the plan 'toy'"):
        settle_plan(run, "gpu", frozen_blocks=None)


CPU = torch.device("cpu")


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
    run = RunFolder(tmp_path)
    assert train(Line(), run, Budget(minutes=0.01, rate=0.1, report_every=5), quiet)
    rows = run.read_losses("line")
    assert rows[-1]["loss"] < 0.5 * rows[0]["loss"]
    assert [row["step"] for row in rows[:3]] == [5, 10, 15]


def test_a_stopped_sitting_resumes_with_weights_step_and_optimiser(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    first, second = Line(), Line(stop_at=0)
    for line, sitting in ((first, 0.005), (second, 0)):
        assert not train(line, run, Budget(minutes=5, rate=0.1, sitting_minutes=sitting), quiet)
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
    assert broken.network.weight.item() == 0


@pytest.mark.parametrize(("progress", "share"), [(0.0, 1.0), (0.4, 1.0), (0.7, 0.51), (1.0, 0.02)])
def test_the_rate_stays_and_then_falls_by_half_a_cosine(progress: float, share: float) -> None:
    assert rate_at(1000, progress, held=0.4) == pytest.approx(share, abs=1e-3)
    assert rate_at(0, progress, held=0.4) == pytest.approx(share / 50, abs=1e-3)


def options(*words: str) -> argparse.Namespace:
    """Return the parsed options."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--stage", "quantizer"), "run train-demo --stage data first"),
        (("--stage", "lm", "--device", "cuda"), "use --device cpu"),  # and nothing takes its place
    ],
)
def test_what_cannot_be_run_is_said(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    sentence: str,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert run(options("--folder", str(tmp_path / "run"), *words)) == 1
    assert sentence in capsys.readouterr().err


def test_every_plan_is_offered_and_shares_its_minutes_among_the_stages_that_train() -> None:
    plan = PLANS["cpu"]
    shares = [minutes_of(stage, plan, 100, alone=False) for stage in TRAINED]
    assert sum(shares) == pytest.approx(100)
    assert minutes_of("lm", plan, 30, alone=True) == 30
    assert list(PLAN_NAMES) == sorted(PLANS)


def test_every_stage_has_a_runner(tmp_path: Path) -> None:
    for stage in STAGES[1:]:
        folder = RunFolder(tmp_path / stage)
        with pytest.raises(Exception, match=r"is missing|holds no speech"):
            run_stage(stage, folder, PLANS["toy"], Options(CPU, minutes=0.01), quiet)


def test_a_loss_that_rises_fails_the_check(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for step in range(8):
        folder.append_losses("lm", {"step": step, "semantic": 1 + step, "residual": 9 - step})
    fallen = [has_fallen(folder, "lm", name, quiet) for name in ("semantic", "residual")]
    assert fallen == [False, True]


def test_a_failed_stage_is_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        call_command("train-demo", "--stage", "encoder", "--folder", str(tmp_path))
    assert caught.value.code == 1
