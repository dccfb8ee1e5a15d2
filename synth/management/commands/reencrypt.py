"""Encrypt the database's secrets with the current key, so that a former one can be given up."""

from __future__ import annotations

from typing import Any

from ttsweb.commands.base import BaseCommand
from ttsweb.commands.errors import CommandError
from ttsweb.counted import counted


class Command(BaseCommand):
    """Read each secret with any of the keys and write it with `TTS_SECRET_KEY`."""

    help = (
        "Encrypt the secrets in the database with TTS_SECRET_KEY. Afterwards you can empty "
        "TTS_SECRET_KEY_FALLBACKS."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        """Say how many secrets were encrypted anew.

        Raises:
            CommandError: secret_unreadable; nothing has changed.
        """
        from django.db import transaction

        from synth.models import WebhookSecret  # the arguments are read before apps are loaded
        from ttsweb.encryption import SecretUnreadableError, reencrypt

        with transaction.atomic():
            rows = list(WebhookSecret.objects.select_for_update(of=("self",)).order_by("pk"))
            for row in rows:
                try:
                    row.encrypted_secret = reencrypt(row.encrypted_secret, what="A webhook secret")
                    row.encrypted_previous = reencrypt(
                        row.encrypted_previous, what="A previous webhook secret"
                    )
                except SecretUnreadableError as error:
                    raise CommandError(f"{error.code}: {error} (user {row.user_id})") from error
                row.save(update_fields=["encrypted_secret", "encrypted_previous"])
        self.stdout.write(
            f"The secrets of {counted(len(rows), 'user')} are encrypted with the present key."
        )
