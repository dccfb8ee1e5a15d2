"""Serve the tools for agents from this machine's own service, without a key of the settings."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from ttsweb.commands.base import BaseCommand, reporting_errors
from ttsweb.mcp import run as serve
from ttsweb.migration import migrate_once
from workers.local.account_key import find_account, kept_secret

KEY_FILE = "mcp_key"


def run(command: BaseCommand, options: dict[str, Any]) -> None:
    with reporting_errors(command.stdout, as_json=False):
        migrate_once(settings.DATA_DIR)
        user = find_account(options["user"] or "", "--user")
        key = kept_secret(user, "MCP", settings.DATA_DIR / KEY_FILE)
    serve(command, options, api_key=key)
