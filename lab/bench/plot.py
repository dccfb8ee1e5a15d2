"""Draw a report as PNG, where matplotlib is installed."""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.bench.report import Plot, Report
from synth.engine.errors import InvalidSpecError


def check_plot(path: Path) -> None:
    """Raise InvalidSpecError when no picture can be drawn there, before anything is measured."""
    if path.suffix.lower() != ".png":
        raise InvalidSpecError(f"{path}: pictures are PNG files; give a name that ends in .png.")
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
