"""Let go of a user's voices before the user goes: without an owner they would be everybody's."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.db.models.signals import pre_delete

from voices.models import Voice
from voices.removal import delete_voice


def connect() -> None:
    """Have every deletion of a user, wherever it happens, let go of the voices first."""
    pre_delete.connect(delete_voices_of, sender=get_user_model(), dispatch_uid="voices of a user")


def delete_voices_of(instance: Any, **kwargs: Any) -> None:
    """Delete the voices of a user who is being deleted, inside the transaction that does it.

    Those that were shared go too: who agreed to them is gone, and a voice without an owner is
    one that the installation itself answers for.
    """
    for voice in Voice.objects.filter(owner_id=instance.pk, deleted_at__isnull=True):
        delete_voice(voice)
