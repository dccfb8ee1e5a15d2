"""Decide which jobs a user may see; every queryset of the API and its pages starts here."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import QuerySet

from synth.models import ApiKey, BookBatch, BookSource, RenderJob


def visible_jobs(user: AbstractBaseUser | AnonymousUser) -> QuerySet[RenderJob]:
    """Return the jobs of this user, items of batches too; a superuser's are all.

    A batch itself is no job that speaks: `visible_batches` has those.
    """
    return _visible(user).exclude(kind=RenderJob.Kind.BATCH)


def visible_batches(user: AbstractBaseUser | AnonymousUser) -> QuerySet[RenderJob]:
    """Return the batches of this user; a superuser's are all."""
    return _visible(user).filter(kind=RenderJob.Kind.BATCH)


def visible_books(user: AbstractBaseUser | AnonymousUser) -> QuerySet[BookSource]:
    """Return the books of this user; a superuser's are all."""
    if not user.is_authenticated:
        return BookSource.objects.none()
    if getattr(user, "is_superuser", False):
        return BookSource.objects.all()
    return BookSource.objects.filter(owner_id=user.pk)


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


def visible_book_batches(user: AbstractBaseUser | AnonymousUser) -> QuerySet[BookBatch]:
    """Return the batches of books of this user; a superuser's are all."""
    if not user.is_authenticated:
        return BookBatch.objects.none()
    if getattr(user, "is_superuser", False):
        return BookBatch.objects.all()
    return BookBatch.objects.filter(owner_id=user.pk)


def _visible(user: AbstractBaseUser | AnonymousUser) -> QuerySet[RenderJob]:
    if not user.is_authenticated:
        return RenderJob.objects.none()
    if getattr(user, "is_superuser", False):
        return RenderJob.objects.all()
    return RenderJob.objects.filter(owner_id=user.pk)
