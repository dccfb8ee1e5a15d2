"""Measure the engine and the service: `manage.py bench NAME`."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ttsweb.command_errors import errors_told
from workers.thread_waiting import LONG_SPIN_ROUNDS, set_spinning

# Each module has add_arguments(parser) and run(options, progress) -> Report.
BENCHES = {
    "ar": ("synth.engine.bench.ar", "frames per second of decode steps, by batch and context"),
    "fast": ("synth.engine.bench.fast", "the fast transformer's part of a frame"),
    "prefill": ("synth.engine.bench.prefill", "prompts, with and without a cached voice"),
    "codec": ("synth.engine.bench.codec", "codes to audio, by length, batch and precision"),
    "encode": ("synth.engine.bench.encode", "audio to codes, and what bfloat16 changes in them"),
    "stream": ("synth.engine.bench.stream", "time from a request to its first audio"),
    "segments": ("synth.engine.bench.segments", "many segments at once, from text to audio"),
    "cold": ("synth.engine.bench.cold", "each part of a process's start, and its memory"),
    "e2e": ("workers.bench.e2e", "a book through queue, database and storage"),
    "inline-vs-stored": (
        "workers.bench.inline_vs_stored",
        "requests that carry their voice's clip against a stored voice",
    ),
}


class BenchParser(CommandParser):
    """Parse one benchmark's arguments, which are asked for when it is the one chosen.

    Benchmarks load torch; listing them must not.
    """

    bench: str | None = None

    def parse_known_args(  # type: ignore[override]  # the overloads say nothing else
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        """Add the benchmark's arguments, then parse."""
        if self.bench is not None:
            name, self.bench = self.bench, None
            load(name).add_arguments(self)
            add_output_arguments(self)
        return super().parse_known_args(args, namespace)


class Command(BaseCommand):
    """Run one benchmark and print its table, or one JSON object."""

    help = "Measure the engine and the service; each benchmark has a --help of its own."
    requires_system_checks: list[str] = []  # noqa: RUF012  # Django's own declaration

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the benchmark's name; its own arguments follow when it is known."""
        chosen = parser.add_subparsers(
            dest="bench", required=True, metavar="NAME", parser_class=BenchParser
        )
        for name, (_, summary) in BENCHES.items():
            chosen.add_parser(name, help=summary, description=summary).bench = name

    def handle(self, *args: Any, **options: Any) -> None:
        """Measure; exit 1 when that fails, 2 for what cannot be measured at all."""
        from synth.engine.bench.plot import check_plot, draw_plot
        from synth.engine.errors import CheckpointError, EngineError, InvalidSpecError

        try:
            if options["plot"]:
                check_plot(options["plot"])
            set_threads(options["threads"])
            with errors_told(self.stdout, as_json=options["json"]):
                report = load(options["bench"]).run(options, self._progress)
        except (InvalidSpecError, CheckpointError) as error:
            raise CommandError(str(error), returncode=2) from error
        except EngineError as error:
            raise CommandError(str(error)) from error
        if options["output"]:
            options["output"].write_text(report.as_json() + "\n", encoding="utf-8")
        if options["plot"]:
            draw_plot(report, options["plot"])
        self.stdout.write(report.as_json() if options["json"] else report.as_table())

    def _progress(self, line: str) -> None:
        """Show what is being measured to a person who waits for it."""
        if sys.stderr.isatty():
            self.stderr.write(line)


def load(name: str) -> Any:
    """Return a benchmark's module.

    The service is measured as its workers are set up; the engine alone as on a machine of its own.
    """
    module = BENCHES[name][0]
    set_spinning(settings.SPIN_ROUNDS if module.startswith("workers.") else LONG_SPIN_ROUNDS)
    return import_module(module)


def add_output_arguments(parser: CommandParser) -> None:
    """Take what every benchmark understands: threads, and the form of the result."""
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: torch's own choice")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the JSON there as well")
    parser.add_argument(
        "--folder",
        type=Path,
        default=settings.DATA_DIR / "bench",
        help="where checkpoints with random weights are kept (default: %(default)s)",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the rows")


def set_threads(threads: int) -> None:
    """Set torch's threads; CommandError for a number below 0."""
    if threads < 0:
        raise CommandError(f"--threads {threads}: expected 0 or more", returncode=2)
    if threads:
        import torch

        torch.set_num_threads(threads)
