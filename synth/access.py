"""Decide which jobs a user may see; every queryset of the API and its pages starts here."""

from __future__ import annotations

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import QuerySet

from synth.models import BookSource, RenderJob


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


def _visible(user: AbstractBaseUser | AnonymousUser) -> QuerySet[RenderJob]:
    if not user.is_authenticated:
        return RenderJob.objects.none()
    if getattr(user, "is_superuser", False):
        return RenderJob.objects.all()
    return RenderJob.objects.filter(owner_id=user.pk)
