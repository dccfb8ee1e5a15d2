"""Hold what a benchmark found, and show it as JSON or as a table."""

from __future__ import annotations

import importlib.util
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synth.engine.errors import EngineError, InvalidSpecError

Progress = Callable[[str], None]  # told one line at a time what is being measured
Options = Mapping[str, Any]  # the command's arguments by name


class BenchFailedError(EngineError):
    """What was to be measured did not do its work; the text says what happened."""

    code = "bench_failed"


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


def check_plot(path: Path, *, suffix: str = ".png") -> None:
    """Raise InvalidSpecError when no picture can be drawn there, before anything is measured."""
    if path.suffix.lower() != suffix:
        kind = suffix[1:].upper()
        raise InvalidSpecError(
            f"{path}: pictures are {kind} files here; give a name that ends in {suffix}."
        )
    if not path.parent.is_dir():
        raise InvalidSpecError(f"{path.parent} is not a folder; create it first.")
    if importlib.util.find_spec("matplotlib") is None:
        raise InvalidSpecError(
            "--plot needs matplotlib; run .venv/bin/python -m pip install -c "
            "constraints.txt matplotlib"
        )


def draw_plot(report: Report, path: Path) -> None:
    """Draw the rows as lines over the axis the report names.

    Raises:
        InvalidSpecError: a picture of this report shows nothing.
    """
    plot = report.plot
    if plot is None:
        raise InvalidSpecError(f"bench {report.name} has no picture; leave --plot out.")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for label, rows in _lines(report, plot).items():
        x = [row[plot.x] for row in rows]
        axes.plot(x, [row[plot.y] for row in rows], marker="o", label=label)
        if plot.low and plot.high:
            axes.fill_between(
                x, [row[plot.low] for row in rows], [row[plot.high] for row in rows], alpha=0.2
            )
    axes.set_xlabel(plot.x.replace("_", " "))
    axes.set_ylabel(plot.y.replace("_", " "))
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    facts = report.facts
    axes.set_title(f"{report.name}, {facts.get('preset')}, {facts.get('device')}")
    figure.savefig(path, dpi=150)


def _lines(report: Report, plot: Plot) -> dict[str, list[Mapping[str, Any]]]:
    """Return the rows that have both values, by their line's label, in the order of x."""
    lines: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in report.rows:
        if row.get(plot.x) is not None and row.get(plot.y) is not None:
            label = ", ".join(f"{key} {row.get(key)}" for key in plot.lines) or plot.y
            lines[label].append(row)
    return {label: sorted(rows, key=lambda row: row[plot.x]) for label, rows in lines.items()}
