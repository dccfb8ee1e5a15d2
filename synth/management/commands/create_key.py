"""Make an API key and print it, once."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError

from synth.keys import create_key


class Command(BaseCommand):
    """`create_key --user NAME --name LABEL [--json]`."""

    help = "Make an API key of a user and print it; it cannot be shown again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--user", required=True, help="Name of the user whose key it is.")
        parser.add_argument("--name", required=True, help="What the key is for.")
        parser.add_argument("--json", action="store_true", help="Print one JSON object.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Make the key and print it on standard output, alone or as JSON."""
        users = get_user_model().objects
        user = users.filter(username=options["user"], is_active=True).first()
        if user is None:
            raise CommandError(f"there is no active user named {options['user']!r}")
        name = options["name"].strip()
        if not 1 <= len(name) <= 100:
            raise CommandError("--name must have 1 to 100 characters")
        row, key = create_key(user, name)
        if options["json"]:
            self.stdout.write(json.dumps({"id": str(row.pk), "name": row.name, "key": key}))
        else:
            self.stdout.write(key)
