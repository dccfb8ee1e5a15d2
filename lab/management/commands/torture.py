"""Put a real installation through every fault: `manage.py torture --minutes 3`."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path

from ttsweb.commands.base import JSON, BaseCommand, add_all, argument, switch

MOST_MINUTES, MOST_SEGMENTS = 24 * 60, 10_000_000


class Command(BaseCommand):
    help = (
        "Start an installation of its own, send it a steady load and do every fault to it, one "
        "after the other; then look whether a job was lost or published twice, and whether each "
        "file is what its row says. Exit code 1 when something is. Needs nothing of what is set up."
    )
    work = "lab.torture.command:torture"
    needs_django = False  # it is set up on the database of the installation that is started

    def add_arguments(self, parser: ArgumentParser) -> None:
        how_long = parser.add_mutually_exclusive_group()
        how_long.add_argument(
            "--minutes",
            type=minutes,
            default=3.0,
            metavar="N",
            help="of load; default 3",
        )
        how_long.add_argument(
            "--soak",
            type=segments,
            metavar="SEGMENTS",
            help="no faults but restarts: render so many segments and look at what grows",
        )
        add_all(
            parser,
            (
                argument("--restarts", type=restarts, metavar="R", help="of a soak; default 16"),
                switch("--redis", "with a Redis of its own as broker"),
                switch("--postgres", "with a PostgreSQL of its own as database"),
                switch("--s3", "with an S3 server of its own as storage"),
                argument(
                    "--faults",
                    metavar="NAMES",
                    help="only these, separated by commas; a table has their names",
                ),
                argument(
                    "--plant", metavar="DEFECTS", help="plant defects, to see that they are found"
                ),
                argument(
                    "--plot", type=Path, metavar="FILE.svg", help="draw jobs over time, and faults"
                ),
                JSON,
            ),
        )


def minutes(text: str) -> float:
    """Return a number of minutes above 0.

    Raises:
        ArgumentTypeError: it is none, or too large.
    """
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= MOST_MINUTES:
        raise ArgumentTypeError(f"{text!r}: expected minutes, more than 0 and up to {MOST_MINUTES}")
    return found


def segments(text: str) -> int:
    return _whole(text, low=100, high=MOST_SEGMENTS)


def restarts(text: str) -> int:
    return _whole(text, low=0, high=1000)


def _whole(text: str, *, low: int, high: int) -> int:
    if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
        raise ArgumentTypeError(f"{text!r}: expected a whole number from {low} to {high}")
    return int(text)
