"""Counts of what people read have the noun of their number."""

from __future__ import annotations

import pytest

from ttsweb.counted import counted


@pytest.mark.parametrize(
    ("number", "nouns", "written"),
    [
        (0, ("clip",), "0 clips"), (1, ("clip",), "1 clip"), (2, ("clip",), "2 clips"),
        (1, ("entry", "entries"), "1 entry"), (40, ("entry", "entries"), "40 entries"),
    ],
)  # fmt: skip
def test_one_of_it_is_singular(number: int, nouns: tuple[str, ...], written: str) -> None:
    assert counted(number, *nouns) == written
