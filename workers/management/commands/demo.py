"""Render a sentence in each of three voices by the whole real path, then serve the site."""

from __future__ import annotations

from pathlib import Path

from ttsweb.commands.base import JSON, BaseCommand, argument, switch
from workers.management.commands.serve import port


class Command(BaseCommand):
    help = (
        "Make three voices, have each say a sentence to a file, then serve the site until Ctrl-C. "
        "A second run reuses the voices and the audio of the first."
    )
    work = "workers.local.demo:run"

    arguments = (
        argument("--text", help="text that each voice says instead of its sentence"),
        argument("--voice-clip", type=Path, help="make one voice, from this clip"),
        argument("--transcript", default="", help="words that are spoken in the clip"),
        argument(
            "--consent", default="", help="how the speaker gave consent to the use of this voice"
        ),
        switch("--no-serve", "stop after the files; do not serve the site"),
        argument("--host", help="address to listen on"),
        argument("--port", type=port, help="port, or auto for the next free one; default: auto"),
        JSON,
    )
