"""Hold what a benchmark found, and show it as JSON or as a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from synth.engine.errors import EngineError

Progress = Callable[[str], None]  # told one line at a time what is being measured
Options = Mapping[str, Any]  # the command's arguments by name


class BenchFailedError(EngineError):
    """What was to be measured did not do its work; the text says what happened."""

    code: ClassVar[str] = "bench_failed"


@dataclass(frozen=True, slots=True)
class Report:
    """Hold one benchmark's result.

    `facts` says what holds for the whole run; `rows` hold one measurement each, keys alike in all.
    `columns` names the keys that the table shows, the JSON has all of them. `plot` names the keys
    of a picture's axes, or is None where a picture shows nothing.
    """

    name: str
    facts: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    columns: Sequence[str]
    plot: Plot | None = None

    def as_json(self) -> str:
        """Return one JSON object: the facts, then `rows`."""
        content = {"name": self.name, **self.facts, "rows": [dict(row) for row in self.rows]}
        return json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False)

    def as_table(self) -> str:
        """Return the facts on a line each and the rows under aligned headings."""
        lines = [f"{key}: {_cell(value)}" for key, value in self.facts.items()]
        cells = [list(self.columns)]
        cells += [[_cell(row.get(column)) for column in self.columns] for row in self.rows]
        widths = [max(len(row[index]) for row in cells) for index in range(len(self.columns))]
        table = ["  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
        return "\n".join([*lines, "", *table])


@dataclass(frozen=True, slots=True)
class Plot:
    """Say how to draw the rows: `y` over `x`, one line for each value of the keys `lines`.

    `low` and `high` name the keys of a band around `y`, where there is one.
    """

    x: str
    y: str
    lines: tuple[str, ...] = ()
    low: str | None = None
    high: str | None = None


def _cell(value: Any) -> str:
    """Return a value for a person: four significant digits, a dash for none."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)
