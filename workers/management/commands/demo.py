"""Render a sample to a file by the whole real path, then serve the site."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from ttsweb.commands.base import BaseCommand
from workers.management.commands.serve import port


class Command(BaseCommand):
    help = (
        "Render a sample to a file, then serve the site until Ctrl-C. A second run reuses "
        "the voice and the audio of the first."
    )
    work = "workers.local.demo:run"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--text", help="text to speak")
        parser.add_argument("--voice-clip", type=Path, help="make the voice from this clip")
        parser.add_argument("--transcript", default="", help="words that are spoken in the clip")
        parser.add_argument(
            "--consent", default="", help="how the speaker gave consent to the use of this voice"
        )
        parser.add_argument(
            "--no-serve", action="store_true", help="stop after the sample; do not serve the site"
        )
        parser.add_argument("--host", help="address to listen on")
        parser.add_argument(
            "--port", type=port, help="port, or auto for the next free one; default: auto"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")
