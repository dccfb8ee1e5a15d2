"""Decide which voices a user may see; every queryset of the API and its pages starts here."""

from __future__ import annotations

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import QuerySet

from voices.models import Voice


def visible_voices(user: AbstractBaseUser | AnonymousUser) -> QuerySet[Voice]:
    """Return the voices that exist and that this user may use: the whole library of the team."""
    if not user.is_authenticated:
        return Voice.objects.none()
    return Voice.objects.filter(deleted_at__isnull=True)
