"""Print rows for people: columns of one width, nothing that a terminal would act on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a table; the last column is as long as it is."""
    cells = [list(head), *([one_line(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for row in cells:
        line = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(line).rstrip()


def one_line(text: str, width: int = 60) -> str:
    """Return a text on one line, cut to a width, without characters that steer a terminal."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return plain if len(plain) <= width else f"{plain[: width - 1]}…"


def length(seconds: float) -> str:
    """Return a length as people say it: seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
