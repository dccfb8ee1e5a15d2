"""Run every codec row of checkpoint.json, and show that the check can fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.golden.case import GoldenFolder
from lab.golden.codec_variants import checkpoint_codec_variants

GOLDEN = GoldenFolder(Path(__file__).resolve().parents[2] / "data" / "golden")


def test_every_row_passes() -> None:
    rows = GOLDEN.json("checkpoint")["codec"]
    results = list(checkpoint_codec_variants(GOLDEN, rows))
    assert len(results) == len(rows) == 15
    assert [result for result in results if not result.passed] == []


@pytest.mark.parametrize(
    "row",
    [
        {"case": "plain", "outcome": "error"},
        {"case": "plain", "outcome": "ok", "audio": "different"},
        {"case": "plain", "outcome": "ok", "audio": "nearly the same"},
        {"case": "missing_tensor", "outcome": "ok", "audio": "same"},
        {"case": "float16", "outcome": "ok", "audio": "same"},
        {"case": "never_heard_of", "outcome": "ok", "audio": "same"},
    ],
)
def test_a_row_that_says_otherwise_is_a_miss(row: dict[str, Any]) -> None:
    (result,) = checkpoint_codec_variants(GOLDEN, [row])
    assert not result.passed
