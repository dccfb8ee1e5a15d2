"""Measure the demo checkpoint's speech: `manage.py eval-demo`."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from ttsweb.commands.base import BaseCommand, CommandError


class Command(BaseCommand):
    """Print a table of figures with their controls, or one JSON object."""

    help = "Measure a checkpoint's words, voices, ends and speed, compared with clean speech."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the folder, where pictures go, and the form of the output."""
        parser.add_argument(
            "--json", action="store_true", help="print one JSON object instead of text"
        )
        parser.add_argument("--checkpoint", type=Path, help="checkpoint; default: the one in use")
        parser.add_argument("--out", type=Path, default=Path("data/eval-demo"))
        parser.add_argument("--threads", type=int, default=2, help="CPU threads")

    def handle(self, *args: Any, **options: Any) -> None:
        """Evaluate; progress goes to standard error."""
        from django.conf import settings

        from workers.process.engine_host import set_spinning

        set_spinning()
        # torch is imported here so that listing commands does not load it.
        from lab.training.espeak import EspeakMissingError
        from lab.training.evaluation.report import evaluate, table
        from lab.training.evaluation.speaking import SamplingChoice
        from synth.card import read_card
        from synth.engine import EngineError

        checkpoint = options["checkpoint"] or settings.CHECKPOINT
        card = read_card(checkpoint)
        try:
            result = evaluate(
                checkpoint,
                options["out"],
                sampling=SamplingChoice(card.temperature, card.top_p, card.top_k),
                threads=options["threads"],
                report=lambda line: self.stderr.write(line),
            )
        except (EspeakMissingError, EngineError, ValueError) as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps(result))
        else:
            self.stdout.write(table(result))
            self.stdout.write(f"spectrograms: {options['out'] / 'spectrograms.png'}")
