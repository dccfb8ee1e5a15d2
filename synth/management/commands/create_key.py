"""Make an API key and print it, once."""

from __future__ import annotations

import datetime as dt
import json
from argparse import ArgumentParser
from typing import Any

from ttsweb.commands.base import BaseCommand, CommandError
from ttsweb.rights import DEFAULT_SCOPES, LIMITS, SCOPES

MOST_DAYS = 36_500
_COLUMN = 2**31 - 1
MOST = dict.fromkeys(LIMITS, _COLUMN) | {"max_stored_bytes": 2**63 - 1}


class Command(BaseCommand):
    help = "Create an API key for a user and print it. The key cannot be shown again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--user", required=True, help="Name of the user who gets the key.")
        parser.add_argument(
            "--name", required=True, help="What the key is for, such as the name of a program."
        )
        parser.add_argument(
            "--scopes",
            default=",".join(DEFAULT_SCOPES),
            help=f"What the key may do, any of {', '.join(SCOPES)}; default: %(default)s.",
        )
        parser.add_argument("--days", type=int, help="Days until the key expires; default: never.")
        for limit, words in LIMITS.items():
            parser.add_argument(
                _option(limit), type=int, metavar="N", help=f"Limit: {words}; default: no limit."
            )
        parser.add_argument("--json", action="store_true", help="Print one JSON object.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Make the key and print it on standard output, alone or as JSON."""
        from django.contrib.auth import get_user_model

        from synth.accounts.access import ScopeError, create_key

        users = get_user_model().objects
        user = users.filter(username=options["user"], is_active=True).first()
        if user is None:
            raise CommandError(
                f"there is no active user named {options['user']!r}; the admin lists all users"
            )
        name = options["name"].strip()
        if not 1 <= len(name) <= 100:
            raise CommandError("--name must have 1 to 100 characters")
        try:
            row, key = create_key(
                user,
                name,
                _expiry(options["days"]),
                scopes=_scopes(options["scopes"]),
                limits={limit: _limit(limit, options[limit]) for limit in LIMITS},
            )
        except ScopeError as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            expires_at = row.expires_at.isoformat() if row.expires_at else None
            limits = {limit: getattr(row, limit) for limit in LIMITS}
            values = {"id": str(row.pk), "name": row.name, "key": key, "scopes": row.scopes}
            self.stdout.write(json.dumps(values | {"expires_at": expires_at} | limits))
        else:
            self.stdout.write(key)


def _option(limit: str) -> str:
    return f"--{limit.replace('_', '-')}"


def _scopes(text: str) -> list[str]:
    scopes = [scope.strip() for scope in text.split(",") if scope.strip()]
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        raise CommandError(
            f"--scopes takes one or more of {', '.join(SCOPES)}, separated by commas; not {text!r}"
        )
    return scopes


def _limit(name: str, value: int | None) -> int | None:
    if value is not None and not 0 <= value <= MOST[name]:
        raise CommandError(f"{_option(name)} must be 0 to {MOST[name]}")
    return value


def _expiry(days: int | None) -> dt.datetime | None:
    from django.utils import timezone

    if days is None:
        return None
    if not 1 <= days <= MOST_DAYS:
        raise CommandError(f"--days must be 1 to {MOST_DAYS}")
    return timezone.now() + dt.timedelta(days=days)
