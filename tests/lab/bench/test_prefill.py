"""Prompts beside the plain loop: every loop reads one copy of the weights."""

from __future__ import annotations

import pytest

from lab.bench import prefill
from lab.bench.baseline import BaselineLoop
from tests.lab.bench.bench_options import run


def test_all_plain_loops_read_the_models_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    tables: list[int] = []

    class Noted(BaselineLoop):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed on
            tables.append(self.weights["slow.embeddings.weight"].data_ptr())

    monkeypatch.setattr(prefill, "BaselineLoop", Noted)
    sizes = ("--tokens", "4,6", "--prefix", "0,5", "--windows", "1", "--dtype", "float32")

    report = run(prefill, *sizes, "--baseline")

    assert len(tables) == len(report.rows) == 6
    assert len(set(tables)) == 1
    assert all(row["ratio_to_baseline"] > 0 for row in report.rows)
