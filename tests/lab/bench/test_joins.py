"""Joins: a step of pitch or level is told in its size, and the bench renders after history."""

from __future__ import annotations

from argparse import ArgumentParser

import numpy as np
import pytest

from lab.bench import joins
from lab.bench.report import BenchFailedError
from lab.management.commands.bench import BENCHES
from lab.training.evaluation.spectra import RATE
from synth.contract import RenderSpec
from synth.engine import Engine
from tests.sources import PROJECT


def tone(hertz: float, level: float = 0.2, seconds: float = 1.0) -> joins.Wave:
    """Return a voice's pulses at one pitch, with a pause before and after them."""
    t = np.arange(round(seconds * RATE)) / RATE
    sound = sum(np.sin(2 * np.pi * hertz * n * t) / n for n in range(1, 6))
    pause = np.zeros(RATE // 5)
    return np.concatenate([pause, level * sound, pause]).astype(np.float32)


def test_steps_are_those_between_the_end_and_the_beginning() -> None:
    assert joins.pitch_step(tone(120), tone(120)) == pytest.approx(0, abs=0.05)
    assert joins.pitch_step(tone(120), tone(120 * 2 ** (3 / 12))) == pytest.approx(3, abs=0.1)
    assert joins.pitch_step(tone(180), tone(180 * 2 ** (-2 / 12))) == pytest.approx(2, abs=0.1)
    assert joins.level_step(tone(120), tone(120)) == pytest.approx(0, abs=0.05)
    assert joins.level_step(tone(120), tone(120, 0.1)) == pytest.approx(6.02, abs=0.1)
    rising = np.concatenate([tone(120, 0.05), tone(200)])
    assert joins.pitch_step(rising, tone(200)) == pytest.approx(0, abs=0.05)
    silence = np.zeros(RATE, np.float32)
    assert joins.pitch_step(tone(120), silence) is None
    with pytest.raises(BenchFailedError, match="voiced"):
        joins.steps([(silence, silence)], joins.pitch_step)


def test_segments_of_a_chain_are_rendered_after_those_before_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[RenderSpec] = []
    submit = Engine.submit

    def note(self: Engine, spec: RenderSpec, **how: object) -> object:
        asked.append(spec)
        return submit(self, spec, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(Engine, "submit", note)
    parser = ArgumentParser()
    BENCHES["joins"].add_arguments(parser)
    options = vars(parser.parse_args(["--chains", "2", "--length", "3", "--history", "0,1"]))
    report = joins.run(options | {"checkpoint": PROJECT / "synth" / "demo"}, lambda line: None)

    assert [row["history"] for row in report.rows] == [0, 1]
    assert [row["joins"] for row in report.rows] == [4, 4]
    before = [[turn.text for turn in spec.history] for spec in asked]
    first, second = joins.SENTENCES[0], joins.SENTENCES[1]
    assert before == [[]] * 8 + [[first], [second], [second], [joins.SENTENCES[2]]]
    assert all(row["pitch_step_semitones"] >= 0 for row in report.rows)
