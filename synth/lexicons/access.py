"""Decide which lexicons a user may see and change; every queryset of lexicons starts here."""

from __future__ import annotations

import uuid

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Q, QuerySet

from synth.models import Lexicon

EVERYBODYS = Q(owner__isnull=True)


def visible_lexicons(user: AbstractBaseUser | AnonymousUser) -> QuerySet[Lexicon]:
    """Return the user's lexicons and everybody's; a superuser's are all."""
    if not user.is_authenticated:
        return Lexicon.objects.none()
    if getattr(user, "is_superuser", False):
        return Lexicon.objects.all()
    return Lexicon.objects.filter(EVERYBODYS | Q(owner_id=user.pk))


def applied_lexicons(owner: AbstractBaseUser | None) -> QuerySet[Lexicon]:
    """Return what may apply to jobs of a user: own and everybody's, never another user's.

    None is the system itself, to which everybody's apply.
    """
    own = Q(owner_id=owner.pk) if owner is not None else Q(pk__in=[])
    return Lexicon.objects.filter(EVERYBODYS | own)


def may_change(user: AbstractBaseUser | AnonymousUser, lexicon: Lexicon) -> bool:
    """Return whether a user who sees a lexicon may also change it."""
    if getattr(user, "is_superuser", False):
        return True
    return user.pk is not None and lexicon.owner_id == user.pk


def find_named(lexicons: QuerySet[Lexicon], wanted: str) -> Lexicon | None:
    """Return the lexicon with this id or name, an own one before everybody's; None without one."""
    try:
        found = lexicons.filter(pk=uuid.UUID(wanted)).first()
    except ValueError:
        found = None
    if found is not None:
        return found
    if "\0" in wanted or any("\ud800" <= letter <= "\udfff" for letter in wanted):
        return None  # no database holds such a name, nor takes the question
    named = list(lexicons.filter(name__iexact=wanted)[:10])
    # Names in another case differ between databases: the exact one, and an own one, come first.
    named.sort(key=lambda lexicon: (lexicon.owner_id is None, lexicon.name != wanted))
    return named[0] if named else None
