"""Encrypt the database's secrets with the current key, so that a former one can be given up."""

from __future__ import annotations

from typing import Any

from ttsweb.commands.base import BaseCommand, CommandError
from ttsweb.refusals import RefusedError, counted


class Command(BaseCommand):
    help = (
        "Encrypt the secrets in the database with TTS_SECRET_KEY. Afterwards you can empty "
        "TTS_SECRET_KEY_FALLBACKS."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        """Say how many secrets were encrypted anew.

        Raises:
            CommandError: secret_unreadable; nothing has changed.
        """
        # The arguments are read before Django.
        from django.db import transaction

        from synth.accounts.sign_in import reencrypt_factors
        from synth.webhooks import reencrypt_secrets

        try:
            with transaction.atomic():
                reencrypt_factors()
                users = reencrypt_secrets()
        except RefusedError as error:
            raise CommandError(f"{error.code}: {error}") from error
        self.stdout.write(
            f"The secrets of {counted(users, 'user')} are encrypted with the present key."
        )
