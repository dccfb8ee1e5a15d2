"""Serve tools for AI agents over standard input and output."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ttsweb import settings
from ttsweb.commands.base import BaseCommand, UsageError, argument, reporting_errors
from ttsweb.install.extras import require_extra


class Command(BaseCommand):
    help = (
        "Serve tools for AI agents over standard input and output, by the Model Context Protocol: "
        "list_voices, speak and render_book_plan. They use the server that TTS_URL names with the "
        "key TTS_API_KEY, or else this machine's, which has to be running."
    )
    work = "ttsweb.mcp:run"
    arguments = (
        argument("--out", type=Path, help="folder for audio files; default: out in TTS_DATA_DIR"),
        argument(
            "--user",
            metavar="NAME",
            help="on the server's machine, the account that speaks; default: the only one",
        ),
    )

    def execute(self, *args: Any, **options: Any) -> None:
        """Leave Django alone where a key opens the server."""
        with reporting_errors(self.stdout, as_json=False):
            require_extra("mcp", "./tts mcp")
        if settings.SERVER_URL and options["user"]:
            raise UsageError("--user names an account of this machine, and TTS_URL another server")
        self.needs_django = not (settings.SERVER_URL or settings.API_KEY) or bool(options["user"])
        options["out"] = options["out"] or settings.DATA_DIR / "out"
        super().execute(*args, **options)

    def handle(self, *args: Any, **options: Any) -> None:
        """Serve with the key of the settings, or else with one of this machine's service."""
        if self.needs_django:
            from workers.local.site import secret_of_tools

            with reporting_errors(self.stdout, as_json=False):
                options["api_key"] = secret_of_tools(options["user"] or "")
        super().handle(*args, **options)
