"""Figures are means with their goals, and the table says which of them are reached."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.training.evaluation.report import table
from lab.training.evaluation.scores import GOALS, Figure, Scores, as_json


def test_shares_of_words_count_words_and_their_goal_moves_with_the_teacher() -> None:
    scores = Scores()
    scores.add("words_wrong", [3, 1, 2], weight=10)
    scores.add("words_wrong", [0, 1, 0], weight=30)
    figure = scores.figures()["words_wrong"]
    assert figure.reach == pytest.approx(0.2)
    assert figure.aim == pytest.approx(0.1)
    assert replace(figure, reach=None, aim=None) == Figure(0.075, 0.05, 0.05, None, None, 40)


def test_a_figure_of_the_model_alone_has_no_teacher() -> None:
    scores = Scores()
    for hit in (True, False):
        scores.add("early", [hit])
    assert as_json(scores.figures()) == {
        "early": {
            "value": 0.5, "teacher": None, "round_trip": None, "reach": 0.03, "aim": 0.01,
            "count": 2,
        }
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "verdict"),
    [
        ("pitch_contour", 0.8, "aim"), ("pitch_contour", 0.7, "reach"),
        ("pitch_contour", 0.59, "short"), ("early", 0.0, "aim"), ("early", 0.03, "reach"),
        ("early", 0.04, "short"), ("bytes", 12e6, "reach"), ("length_ratio", 1.0, ""),
    ],
)  # fmt: skip
def test_a_verdict_follows_the_goals(name: str, value: float, verdict: str) -> None:
    goal = GOALS[name]
    assert Figure(value, None, None, goal.reach, goal.aim, 1).verdict(name) == verdict


def test_the_table_has_a_line_for_every_figure_with_its_verdict() -> None:
    figures = {
        name: Figure(0.5, 0.25, None, goal.reach, goal.aim, 7) for name, goal in GOALS.items()
    }
    lines = table({**as_json(figures), "median_pitch_hz": {"slt": 171.5}}).splitlines()
    for name in GOALS:
        (line,) = [line for line in lines if line.startswith(f"{name} ")]
        assert "0.25" in line
    assert lines[-1] == "median pitch in Hz: slt 171.5"
    shown = table({**as_json({"early": figures["early"]}), "median_pitch_hz": {}}).splitlines()
    assert len(shown) == 2 and shown[1].endswith("short")
