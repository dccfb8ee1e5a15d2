"""Progress is redrawn on a terminal, plain lines elsewhere; tables are aligned and harmless."""

from __future__ import annotations

import io

import pytest

from ttsweb.commands.terminal import Progress, one_line, table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run_a_step(stream: io.StringIO) -> str:
    progress = Progress(stream)
    progress.begin("Rendering", "12 characters")
    progress.update("1.0 s of audio", done=1, total=4)
    progress.update("2.0 s of audio", done=2, total=4)
    progress.end("4/4 segments")
    return stream.getvalue()


def test_without_a_terminal_there_are_plain_lines_and_no_updates() -> None:
    assert run_a_step(io.StringIO()) == "Rendering   12 characters\nRendering   4/4 segments\n"


def test_terminal_shows_a_bar_and_leaves_the_result() -> None:
    written = run_a_step(Terminal())
    assert "[##########..........] 2/4  2.0 s of audio" in written
    assert written.count("\n") == 1
    assert written.endswith("\x1b[2KRendering   4/4 segments\n")


def test_terminal_line_is_never_longer_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream = Terminal()
    progress = Progress(stream)
    progress.begin("Voice", "x" * 200)
    assert len(stream.getvalue().removeprefix("\r\x1b[2K")) == 29


def test_unchanged_line_is_not_drawn_again() -> None:
    stream = Terminal()
    progress = Progress(stream)
    progress.begin("Voice", "pending")
    length = len(stream.getvalue())
    progress.update("pending")
    assert len(stream.getvalue()) == length


def test_broken_off_step_gives_the_line_free() -> None:
    stream = Terminal()
    progress = Progress(stream)
    progress.begin("Voice", "pending")
    progress.leave()
    progress.leave()
    assert stream.getvalue().endswith("pending\n")


def test_columns_have_one_width_and_lines_no_trailing_blanks() -> None:
    lines = list(table(("id", "name"), [("1", "Ada"), ("100", "")]))
    assert lines == ["id   name", "1    Ada", "100"]


def test_table_without_rows_is_its_head() -> None:
    assert list(table(("id", "name"), [])) == ["id  name"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("two\nlines\t and  blanks ", "two lines and blanks"),
        ("\x1b[31mred\x1b[0m\x07", "[31mred [0m"), ("\u202eright to left", "right to left"),
        ("x" * 61, "x" * 59 + "…"), ("x" * 60, "x" * 60),
    ],
)  # fmt: skip
def test_text_is_one_line_without_what_steers_a_terminal(text: str, line: str) -> None:
    assert one_line(text) == line
