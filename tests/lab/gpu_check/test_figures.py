"""The table of figures gives a verdict on nothing that was not measured."""

from __future__ import annotations

from typing import Any

import pytest

from lab.gpu_check.figures import FIGURES, as_table, figure_rows
from lab.gpu_check.parity import STEPS as PARITY
from lab.gpu_check.serving import STEPS as SERVING
from lab.gpu_check.speed import STEPS as SPEED

GPU = "cuda:0 NVIDIA H200"


def _record(status: str = "done", device: str = GPU, **figures: float) -> dict[str, Any]:
    head = {"part": "speed", "step": "ar", "status": status, "device": device, "preset": "full"}
    return {**head, "figures": figures, "reason": "out of luck"}


def _rtf(*records: dict[str, Any], on_gpu: bool = True, preset: str = "full") -> dict[str, str]:
    rows = figure_rows(records, device=GPU, preset=preset, on_gpu=on_gpu)
    return next(row for row in rows if row["figure"].startswith("RTF"))


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(0.121, "MISSED"), (0.12, "reach met"), (0.1, "reach met"), (0.095, "aim met")],
)
def test_less_is_better_for_a_time(value: float, verdict: str) -> None:
    assert _rtf(_record(rtf=value))["verdict"] == verdict


@pytest.mark.parametrize(
    ("value", "verdict"), [(29_999.0, "MISSED"), (30_000.0, "reach met"), (60_000.0, "aim met")]
)
def test_more_is_better_for_a_rate(value: float, verdict: str) -> None:
    figure = next(figure for figure in FIGURES if figure.key == "tokens_per_second")
    assert figure.verdict(value) == verdict


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (_record("failed"), "speed ar: out of luck"),
        (_record("not measured"), "speed ar: out of luck"),
        (_record(), "speed ar did not give it"),
        (_record("done", "cuda:0 another", rtf=0.01), "speed ar has not run here"),
    ],
)
def test_what_was_not_measured_has_a_reason_and_no_verdict(
    record: dict[str, Any], reason: str
) -> None:
    row = _rtf(record)
    assert row["found"] == "-"
    assert row["verdict"] == f"not measured: {reason}"


@pytest.mark.parametrize(("on_gpu", "preset"), [(False, "full"), (True, "tiny")])
def test_a_cpu_or_another_shape_meets_no_mark(on_gpu: bool, preset: str) -> None:
    record = {**_record(rtf=0.01), "preset": preset}
    assert _rtf(record, on_gpu=on_gpu, preset=preset)["verdict"].startswith("none:")


def test_every_figure_has_a_step_that_can_give_it() -> None:
    steps = {"parity": PARITY, "speed": SPEED, "serving": SERVING}
    for figure in FIGURES:
        assert figure.step in {step.name for step in steps[figure.part]}


@pytest.mark.parametrize("steps", [PARITY, SPEED, SERVING])
def test_a_parts_steps_fit_into_its_time(steps: Any) -> None:
    assert sum(step.seconds for step in steps) <= 480
    assert len({step.name for step in steps}) == len(steps)


def test_a_table_is_aligned() -> None:
    rows: list[dict[str, Any]] = [{"a": 1, "b": None}, {"a": 12345.678, "b": True}]
    assert as_table(rows, ("a", "b")) == "a        b\n1        -\n12345.7  yes"
