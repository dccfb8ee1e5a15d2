"""Decide which jobs a user may see; every queryset of the API and its pages starts here."""

from __future__ import annotations

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import (
    Case,
    Count,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.db.models.functions import Coalesce, Least

from synth.models import RenderJob


def visible_jobs(user: AbstractBaseUser | AnonymousUser) -> QuerySet[RenderJob]:
    """Return the jobs of this user, items of batches too; a superuser's are all.

    A batch itself is no job that speaks: `visible_batches` has those.
    """
    return _visible(user).exclude(kind=RenderJob.Kind.BATCH)


def visible_batches(user: AbstractBaseUser | AnonymousUser) -> QuerySet[RenderJob]:
    """Return the batches of this user; a superuser's are all."""
    return _visible(user).filter(kind=RenderJob.Kind.BATCH)


def _visible(user: AbstractBaseUser | AnonymousUser) -> QuerySet[RenderJob]:
    if not user.is_authenticated:
        return RenderJob.objects.none()
    if getattr(user, "is_superuser", False):
        return RenderJob.objects.all()
    return RenderJob.objects.filter(owner_id=user.pk)


def with_queue_position(jobs: QuerySet[RenderJob]) -> QuerySet[RenderJob]:
    """Add `queue_position`, 1 for the next one; it means something for queued jobs alone.

    It says after how many other queued jobs this one begins, about: after those of more urgent
    classes, the older ones of its own lane, and as many of each other lane, since lanes take turns.
    Lanes of one length give the exact number; a short one beside long ones counts a little more
    than it has.
    """
    older = Q(created_at__lt=OuterRef("created_at")) | Q(
        created_at=OuterRef("created_at"), pk__lt=OuterRef("pk")
    )
    same_class = Q(priority=OuterRef("priority"))
    own_lane = same_class & Q(lane=OuterRef("lane"))
    other_lanes = same_class & ~Q(lane=OuterRef("lane"))
    first_of_lane = (
        RenderJob.objects.filter(
            status=RenderJob.Status.QUEUED,
            priority=OuterRef(OuterRef("priority")),
            lane=OuterRef(OuterRef("lane")),
        )
        .order_by("created_at")
        .values("created_at")[:1]
    )
    lanes = Count("lane", distinct=True)
    own = _count(own_lane & older)
    lanes_first = _count(other_lanes & Q(created_at__lt=Subquery(first_of_lane)), lanes)
    others = Least(_count(other_lanes), _count(other_lanes, lanes) * own + lanes_first)
    position = _count(Q(priority__lt=OuterRef("priority"))) + own + others + 1
    is_queued = When(status=RenderJob.Status.QUEUED, then=position)
    return jobs.annotate(
        queue_position=Case(is_queued, default=Value(0), output_field=IntegerField())
    )


def _count(which: Q, what: Count | None = None) -> Coalesce:
    """Return how many queued jobs, or what of them, stand in a relation to a job."""
    queued = RenderJob.objects.filter(which, status=RenderJob.Status.QUEUED)
    rows = queued.exclude(kind=RenderJob.Kind.BATCH).order_by().values("status")
    return Coalesce(Subquery(rows.annotate(count=what or Count("pk")).values("count")), 0)
