"""The command trains what it is asked for, in its own folder, and says what is missing."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import torch

from lab.training.arguments import PLAN_NAMES, STAGES, add_arguments
from lab.training.main import has_fallen, minutes_of, run
from lab.training.shards import RunFolder
from lab.training.stages import PLANS, GateError, Options, check_gate, run_stage


def options(*words: str) -> argparse.Namespace:
    """Return the parsed options."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


def test_a_stage_before_its_time_says_what_to_run_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run(options("--folder", str(tmp_path / "run"), "--stage", "quantizer"))
    assert code == 1
    assert "run train-demo --stage data first" in capsys.readouterr().err


def test_no_cuda_is_said_and_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code = run(options("--folder", str(tmp_path), "--device", "cuda", "--stage", "lm"))
    assert code == 1
    assert "use --device cpu" in capsys.readouterr().err


def test_a_missed_gate_stops_unless_forced(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    lines: list[str] = []

    strict = Options(torch.device("cpu"), minutes=1)
    with pytest.raises(GateError, match="has not been trained"):
        check_gate("lm", folder, strict, lines.append)

    check_gate("lm", folder, Options(torch.device("cpu"), minutes=1, force=True), lines.append)

    assert lines == ["gate missed: lm has not been trained"]


def test_minutes_are_shared_among_the_stages_that_train() -> None:
    plan = PLANS["cpu"]
    shares = [minutes_of(stage, plan, 100, alone=False) for stage in ("encoder", "decoder", "lm")]
    assert sum(shares) == pytest.approx(100)
    assert minutes_of("lm", plan, 30, alone=True) == 30


def test_every_stage_has_a_runner(tmp_path: Path) -> None:

    for stage in STAGES[1:]:
        with pytest.raises(Exception, match=r"is missing|holds no speech"):
            run_stage(
                stage,
                RunFolder(tmp_path / stage),
                PLANS["toy"],
                Options(torch.device("cpu"), minutes=0.01),
                lambda line: None,
            )


def test_a_loss_that_rises_fails_the_check(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for step in range(8):
        folder.append_losses("lm", {"step": step, "semantic": 1 + step, "residual": 9 - step})

    assert not has_fallen(folder, "lm", "semantic", lambda line: None)
    assert has_fallen(folder, "lm", "residual", lambda line: None)


def test_command_line_offers_every_plan() -> None:
    assert list(PLAN_NAMES) == sorted(PLANS)
