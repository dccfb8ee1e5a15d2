"""Run the engine's benchmarks as a command line would, and keep their rows."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from lab.bench import arguments as bench_arguments
from lab.bench.report import Report
from lab.gpu_check.steps import Context, Found

Row = Mapping[str, Any]


def run_bench(context: Context, name: str, *arguments: str) -> Report:
    """Run `lab.bench.NAME` on the context's device and shape with these arguments."""
    module = import_module(f"lab.bench.{name}")
    parser = ArgumentParser(prog=name)
    getattr(bench_arguments, f"add_{name}_arguments")(parser)
    place = ["--preset", context.preset, "--device", str(context.device)]
    options = vars(parser.parse_args([*place, *arguments]))
    # What the command adds for every benchmark.
    options |= {"threads": 0, "folder": context.scratch}
    report: Report = module.run(options, context.progress)
    return report


def found_of(report: Report, **figures: float | None) -> Found:
    """Return a report as what a step found; a figure of None was not to be had."""
    known = {name: value for name, value in figures.items() if value is not None}
    facts = {key: value for key, value in report.facts.items() if key in _TOLD}
    notes = [
        ", ".join(_write_fact(key, value) for key, value in facts.items() if value is not None)
    ]
    return Found(rows=report.rows, columns=report.columns, figures=known, notes=notes)


def _write_fact(key: str, value: object) -> str:
    return f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"


def value_of(rows: Sequence[Row], key: str, **where: object) -> float | None:
    """Return a number of the row that has these values, None where there is no such row."""
    for row in rows:
        if all(row.get(name) == value for name, value in where.items()):
            value = row[key]
            return None if value is None else float(value)
    return None


_TOLD = (
    "device",
    "torch",
    "triton",
    "cuda",
    "copy_gigabytes_per_second",
    "windows",
    "runs",
    "requests",
    "slots",
    "codec_dtype",
    "graphs",
    "baseline",
)
