"""Read what the benchmarks of the service are asked for; without torch and Django."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from lab.bench.arguments import number, numbers
from synth.engine.presets.shapes import PRESETS


def add_e2e_arguments(parser: ArgumentParser) -> None:
    """Take the book, how much of it, and what the service runs on."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--book", type=Path, metavar="FILE.epub")
    what.add_argument(
        "--jobs",
        type=number(low=20),
        help="number of jobs of one sentence instead, in a batch, over HTTP",
    )
    parser.add_argument(
        "--posts",
        type=number(low=20),
        default=500,
        help="with --jobs: number of further jobs, sent one by one",
    )
    parser.add_argument(
        "--chapters", type=number(low=1), default=1, help="number of chapters, from the first on"
    )
    parser.add_argument("--segments", type=number(low=1), help="about this many segments at most")
    parser.add_argument(
        "--repeat", type=number(low=1), default=4, help="number of rounds; the median counts"
    )
    add_service_arguments(parser)


def add_service_arguments(parser: ArgumentParser) -> None:
    """Take what a worker of a benchmark runs on."""
    parser.add_argument("--slots", type=number(low=1), default=16)
    parser.add_argument("--checkpoint", type=Path, help="checkpoint; default: TTS_CHECKPOINT")
    shapes = ", ".join(PRESETS)
    parser.add_argument(
        "--preset", choices=sorted(PRESETS), help=f"preset with random weights: {shapes}"
    )
    parser.add_argument("--device", help="device; default: TTS_DEVICE")
    parser.add_argument(
        "--database", default="", metavar="URL", help="an empty database; default: SQLite"
    )
    parser.add_argument("--broker", default="", metavar="URL", help="Redis; default: files")


def add_inline_arguments(parser: ArgumentParser) -> None:
    """Take how many requests, with clips how long, and what the service runs on."""
    parser.add_argument("--requests", type=number(low=1), default=12, help="requests of each kind")
    parser.add_argument(
        "--seconds", type=numbers(low=1), default=[3, 10, 30], help="seconds of the clip"
    )
    add_service_arguments(parser)
