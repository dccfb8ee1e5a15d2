"""Measure the demo checkpoint's speech: `manage.py eval-demo`."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Any

from lab.bench.arguments import GPU_FORMATS
from lab.training.evaluation.scores import SUBJECTS
from ttsweb.commands.base import BaseCommand, CommandError, StepError


def read_subjects(value: str) -> tuple[str, ...]:
    """Return the subjects that a list with commas names.

    Raises:
        ArgumentTypeError: there is none of that name.
    """
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if not names or set(names) - set(SUBJECTS):
        raise ArgumentTypeError(f"{value!r}: expected some of {','.join(SUBJECTS)}")
    return names


def read_count(value: str) -> int:
    """Return a whole number above 0.

    Raises:
        ArgumentTypeError: it is none.
    """
    if not value.isdecimal() or not int(value):
        raise ArgumentTypeError(f"{value!r}: expected a whole number above 0")
    return int(value)


class Command(BaseCommand):
    """Print a table of figures with their goals, or one JSON object."""

    help = "Measure a checkpoint's words, melody, voices, ends and speed beside its teacher's."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the folder, what is measured, where pictures go, and the form of the output."""
        parser.add_argument(
            "--json", action="store_true", help="print one JSON object instead of text"
        )
        parser.add_argument("--checkpoint", type=Path, help="checkpoint; default: the one in use")
        parser.add_argument("--out", type=Path, default=Path("data/eval-demo"))
        parser.add_argument("--threads", type=int, default=2, help="CPU threads")
        parser.add_argument(
            "--sentences", type=read_count, metavar="N", help="at most N sentences of each kind"
        )
        parser.add_argument(
            "--gpu-dtype",
            choices=GPU_FORMATS,
            help="number format of a GPU, which is emulated; default: float32 as on a CPU",
        )
        parser.add_argument(
            "--only",
            type=read_subjects,
            default=SUBJECTS,
            metavar="NAMES",
            help=f"measure only some of {','.join(SUBJECTS)}",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Evaluate; progress goes to standard error."""
        from django.conf import settings

        from workers.process.engine_host import set_spinning

        set_spinning()
        # torch is imported here so that listing commands does not load it.
        from lab.training.evaluation.report import MELODIES, SPECTROGRAMS, evaluate, table
        from lab.training.flite import FliteMissingError
        from synth.card import read_card
        from synth.contract import Sampling
        from synth.engine import EngineError

        checkpoint = options["checkpoint"] or settings.CHECKPOINT
        card = read_card(checkpoint)
        try:
            result = evaluate(
                checkpoint,
                options["out"],
                subjects=options["only"],
                most=options["sentences"],
                sampling=Sampling(temperature=card.temperature, top_p=card.top_p, top_k=card.top_k),
                threads=options["threads"],
                report=self.stderr.write,
                gpu_dtype=options["gpu_dtype"],
            )
        except (FliteMissingError, StepError, EngineError, ValueError) as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps(result))
        else:
            self.stdout.write(table(result))
            for name in (SPECTROGRAMS, MELODIES):
                if (options["out"] / name).is_file():
                    self.stdout.write(str(options["out"] / name))
