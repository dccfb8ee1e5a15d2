"""Install what some commands and settings need."""

from __future__ import annotations

from ttsweb.commands.base import BaseCommand, argument
from ttsweb.install.extras import EXTRAS


class Command(BaseCommand):
    help = (
        "Install what only some installations need: wyoming for ./tts serve --wyoming, mcp for "
        "./tts mcp, asr for a transcriber that works offline, s3 for TTS_STORAGE=s3://…, "
        "oidc for TTS_OIDC_URL, otel for traces."
    )
    work = "ttsweb.install.extras:install"
    needs_django = False

    arguments = (argument("extra", choices=tuple(EXTRAS), help="what to install"),)
