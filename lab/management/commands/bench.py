"""Measure the engine and the service: `manage.py bench NAME`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from lab.bench import arguments
from ttsweb.commands.base import BaseCommand, CommandError, CommandParser, reporting_errors


class Bench(NamedTuple):
    """A benchmark: its module, which loads torch, what it is in words, and its arguments."""

    module: str
    summary: str
    add_arguments: Callable[[ArgumentParser], None]


# Each module has run(options, progress) -> Report.
BENCHES = {
    "ar": Bench(
        "lab.bench.ar",
        "frames per second of decode steps, by batch and context",
        arguments.add_ar_arguments,
    ),
    "fast": Bench(
        "lab.bench.fast", "the fast transformer's part of a frame", arguments.add_fast_arguments
    ),
    "prefill": Bench(
        "lab.bench.prefill",
        "prompts, with and without a cached voice",
        arguments.add_prefill_arguments,
    ),
    "codec": Bench(
        "lab.bench.codec",
        "codes to audio, by length, batch and precision",
        arguments.add_codec_arguments,
    ),
    "encode": Bench(
        "lab.bench.encode",
        "audio to codes, and what bfloat16 changes in them",
        arguments.add_encode_arguments,
    ),
    "stream": Bench(
        "lab.bench.stream", "time from a request to its first audio", arguments.add_stream_arguments
    ),
    "segments": Bench(
        "lab.bench.segments",
        "many segments at once, from text to audio",
        arguments.add_segments_arguments,
    ),
    "joins": Bench(
        "lab.bench.joins",
        "steps of pitch and level between segments, with and without history",
        arguments.add_joins_arguments,
    ),
    "agreement": Bench(
        "lab.bench.agreement",
        "what a GPU's number formats change in the logits, in emulation on a CPU",
        arguments.add_agreement_arguments,
    ),
    "cold": Bench(
        "lab.bench.cold",
        "each part of a process's start, and its memory",
        arguments.add_cold_arguments,
    ),
    "e2e": Bench(
        "lab.bench.service.e2e",
        "a book through queue, database and storage",
        arguments.add_e2e_arguments,
    ),
    "first-byte": Bench(
        "lab.bench.service.first_byte",
        "time from a request for speech to its first and its last byte, by format",
        arguments.add_first_byte_arguments,
    ),
    "inline-vs-stored": Bench(
        "lab.bench.service.inline_vs_stored",
        "requests that send their voice's clip, compared with a stored voice",
        arguments.add_inline_arguments,
    ),
}


class BenchParser(CommandParser):
    """Parse one benchmark's arguments, which are declared when it is the one chosen."""

    bench: Bench | None = None

    def parse_known_args(  # type: ignore[override]  # the overloads say nothing else
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        """Add the benchmark's arguments, then parse."""
        if self.bench is not None:
            bench, self.bench = self.bench, None
            bench.add_arguments(self)
            add_output_arguments(self)
        return super().parse_known_args(args, namespace)


class Command(BaseCommand):
    """Run one benchmark and print its table, or one JSON object."""

    help = "Measure the engine and the service; each benchmark has its own --help."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the benchmark's name; its own arguments follow when it is known."""
        chosen = parser.add_subparsers(
            dest="bench", required=True, metavar="NAME", parser_class=BenchParser
        )
        for name, bench in BENCHES.items():
            chosen.add_parser(name, help=bench.summary, description=bench.summary).bench = bench

    def handle(self, *args: Any, **options: Any) -> None:
        """Measure; exit 1 when that fails, 2 for what cannot be measured at all."""
        from lab.bench.report import check_plot, draw_plot
        from synth.engine.errors import CheckpointError, EngineError, InvalidSpecError

        try:
            if options["plot"]:
                check_plot(options["plot"])
            set_threads(options["threads"])
            with reporting_errors(self.stdout, as_json=options["json"]):
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
    from workers.process.engine_host import LONG_SPIN_ROUNDS, SPIN_ROUNDS, set_spinning

    module = BENCHES[name].module
    is_service = module.startswith("lab.bench.service.")
    set_spinning(SPIN_ROUNDS if is_service else LONG_SPIN_ROUNDS)
    return import_module(module)


def add_output_arguments(parser: CommandParser) -> None:
    """Take what every benchmark understands: threads, and the form of the result."""
    from ttsweb import settings

    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0: torch's own choice")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object instead of tables"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="also write the JSON to this file"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=settings.DATA_DIR / "bench",
        help="folder for checkpoints with random weights (default: %(default)s)",
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.png", help="draw the figures as a picture"
    )


def set_threads(threads: int) -> None:
    """Set torch's threads; CommandError for a number below 0."""
    if threads < 0:
        raise CommandError(f"--threads {threads}: expected 0 or more", returncode=2)
    if threads:
        import torch

        torch.set_num_threads(threads)
