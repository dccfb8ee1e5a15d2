"""Read a benchmark's arguments as its command does."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from types import ModuleType
from typing import Any

from lab.bench.report import Report
from lab.management.commands.bench import BENCHES


def options_of(module: ModuleType, *arguments: str) -> dict[str, Any]:
    """Return the options of a benchmark on the tiny model."""
    parser = ArgumentParser()
    next(one for one in BENCHES.values() if one.module == module.__name__).add_arguments(parser)
    return vars(parser.parse_args(["--preset", "tiny", "--device", "cpu", *arguments]))


def run(module: ModuleType, *arguments: str) -> Report:
    """Run a benchmark on the tiny model."""
    options = options_of(module, *arguments) | {"threads": 0, "folder": Path()}
    report: Report = module.run(options, lambda line: None)
    return report
