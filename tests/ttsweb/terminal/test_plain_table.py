"""Tables for people: aligned, and harmless to the terminal."""

from __future__ import annotations

import pytest

from ttsweb.terminal.plain_table import one_line, table


def test_columns_have_one_width_and_lines_no_trailing_blanks() -> None:
    lines = list(table(("id", "name"), [("1", "Ada"), ("100", "")]))

    assert lines == ["id   name", "1    Ada", "100"]


def test_table_without_rows_is_its_head() -> None:
    assert list(table(("id", "name"), [])) == ["id  name"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("two\nlines\t and  blanks ", "two lines and blanks"),
        ("\x1b[31mred\x1b[0m\x07", "[31mred [0m"),
        ("\u202eright to left", "right to left"),
        ("x" * 61, "x" * 59 + "…"),
        ("x" * 60, "x" * 60),
    ],
)
def test_text_is_one_line_without_what_steers_a_terminal(text: str, line: str) -> None:
    assert one_line(text) == line
