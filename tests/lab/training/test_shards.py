"""A run's files are whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lab.training.shards import RunFolder, RunFolderError
from lab.training.stages import PLANS, missed_gates, settle_plan
from lab.training.trainer import write_curves


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "new")

    run.save("quantizer", {"rows": torch.arange(3), "names": ["a"]})

    assert run.load("quantizer")["rows"].tolist() == [0, 1, 2]
    assert run.has("quantizer")
    assert not list(run.path.glob("*.partial"))


def test_an_interrupted_save_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunFolder(tmp_path)
    run.save("lm-state", {"step": 1})

    def killed(content: object, file: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        run.save("lm-state", {"step": 2})

    assert run.load("lm-state")["step"] == 1


def test_a_missing_result_names_the_stage_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="--stage encoder"):
        RunFolder(tmp_path).load("encoder-state")


def test_half_a_line_of_losses_is_left_out(tmp_path: Path) -> None:
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

    run.append_losses("decoder", {"mel": 0.2, "wave": 0.9})
    assert len(missed_gates(run, "decoder")) == 1
    for _ in range(4):
        run.append_losses("decoder", {"mel": 0.2, "wave": 0.3})

    assert missed_gates(run, "decoder") == []
    assert missed_gates(run, "data") == []


def test_a_folder_keeps_its_plan(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert settle_plan(run, "toy", frozen_blocks=None) == PLANS["toy"]
    assert settle_plan(run, None, frozen_blocks=2).encoder.frozen_blocks == 2
    with pytest.raises(RunFolderError, match="started with the plan 'toy'"):
        settle_plan(run, "gpu", frozen_blocks=None)
