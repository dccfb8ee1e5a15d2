"""Decide which voices a user may see and change; every queryset of voices starts here."""

from __future__ import annotations

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Q, QuerySet

from voices.models import Voice, VoiceVersion

EVERYBODYS = Q(shared=True) | Q(owner__isnull=True)  # a voice without an owner is built in


def visible_voices(user: AbstractBaseUser | AnonymousUser) -> QuerySet[Voice]:
    """Return the voices that this user may see and speak with; a superuser's are all.

    A user's own voices, those that others share, and those without an owner.
    """
    if not user.is_authenticated:
        return Voice.objects.none()
    alive = Voice.objects.filter(deleted_at__isnull=True)
    if getattr(user, "is_superuser", False):
        return alive
    return alive.filter(EVERYBODYS | Q(owner_id=user.pk))


def offered_voices(user: AbstractBaseUser | AnonymousUser) -> QuerySet[Voice]:
    """Return the visible voices that can speak at once, without those that were put away."""
    ready = visible_voices(user).filter(versions__status=VoiceVersion.Status.READY)
    return ready.filter(archived=False, consent_withdrawn_at=None).distinct()


def public_voices() -> QuerySet[Voice]:
    """Return the voices that every user may speak with."""
    return Voice.objects.filter(EVERYBODYS, deleted_at__isnull=True)


def may_change(user: AbstractBaseUser | AnonymousUser, voice: Voice) -> bool:
    """Return whether a user who sees a voice may also change, encode and delete it."""
    if getattr(user, "is_superuser", False):
        return True
    return user.pk is not None and voice.owner_id == user.pk
