"""Decide which jobs a user may see; every queryset of the API and its pages starts here."""

from __future__ import annotations

from typing import Any, TypeVar

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import QuerySet

from synth.models import ApiKey, Batch, BookSource, RenderJob

Row = TypeVar("Row", RenderJob, Batch, BookSource)


def visible_jobs(user: AbstractBaseUser | AnonymousUser) -> QuerySet[RenderJob]:
    """Return the jobs of this user, items of batches too; a superuser's are all."""
    return _visible(RenderJob.objects.all(), user)


def visible_batches(user: AbstractBaseUser | AnonymousUser, kind: Batch.Kind) -> QuerySet[Batch]:
    """Return the batches of texts or of books of this user; a superuser's are all."""
    return _visible(Batch.objects.filter(kind=kind), user)


def visible_books(user: AbstractBaseUser | AnonymousUser) -> QuerySet[BookSource]:
    """Return the books of this user; a superuser's are all."""
    return _visible(BookSource.objects.all(), user)


def sees_installation(user: AbstractBaseUser | AnonymousUser, key: ApiKey | None = None) -> bool:
    """Say whether a user may see figures of the whole installation: workers, caches, storage.

    Superusers may, and staff who may view workers; a key needs the scope `admin` besides.
    """
    if key is not None and ApiKey.Scope.ADMIN not in key.scopes:
        return False
    person: Any = user
    if getattr(person, "is_superuser", False):
        return True
    is_staff = bool(getattr(person, "is_staff", False))
    return is_staff and bool(person.has_perm("synth.view_workerstatus"))


def _visible(rows: QuerySet[Row], user: AbstractBaseUser | AnonymousUser) -> QuerySet[Row]:
    if not user.is_authenticated:
        return rows.none()
    if getattr(user, "is_superuser", False):
        return rows
    return rows.filter(owner_id=user.pk)
