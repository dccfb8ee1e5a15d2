"""Claim rows for a bounded time: an abstract model and the UPDATEs that leased rows share.

A claim is a token. Whoever holds the token may renew, finish or release; a late worker's token no
longer matches, so its UPDATE changes nothing. No clock is kept in memory: expiry is a column.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterable
from typing import Any, ClassVar, Self, TypeVar

from django.db import connection, models
from django.db.models import F, Q, QuerySet
from django.utils import timezone

Row = TypeVar("Row", bound=models.Model, covariant=True)


class LeasedRows(QuerySet[Row]):
    """Rows that are claimed: an UPDATE of them states its condition on the row itself."""

    def update(self, **columns: Any) -> int:
        """Update as Django does.

        Raises:
            TypeError: the condition joins another table. Django would look the rows up in a query
                of their own, and PostgreSQL does not look again at a row that this UPDATE waited
                for: a claim that was lost meanwhile would still match. Say `job__in=` instead.
        """
        if sum(1 for count in self.query.alias_refcount.values() if count) > 1:
            raise TypeError("an UPDATE of leased rows may not join another table; use `__in`")
        return super().update(**columns)


class LeasedModel(models.Model):
    """Give a row a claim: who works on it, under which token, until when, how often tried."""

    claimed_by = models.CharField(max_length=120, blank=True, default="")
    claim_token = models.UUIDField(null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    not_before = models.DateTimeField(default=timezone.now)
    # When a message for this row was last sent; the sweep sends again what stays unclaimed.
    sent_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[models.Manager[Self]] = LeasedRows.as_manager()

    class Meta:
        abstract = True


def database_now() -> dt.datetime:
    """Return the clock of all leases: the database server's, or this host's on SQLite."""
    if connection.vendor != "postgresql":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row = cursor.fetchone()
    moment: dt.datetime = row[0]
    return moment


def claim(
    rows: QuerySet[Any], *, worker: str, lease_seconds: float, now: dt.datetime, **changes: Any
) -> uuid.UUID | None:
    """Claim the one row that `rows` selects, if it is still free; of many callers one wins.

    Args:
        rows: a queryset whose filter is the whole condition (primary key, free status, not_before).
        changes: further columns to set in the same UPDATE, such as the status.

    Returns:
        The claim's token, or None when somebody else was first.
    """
    token = uuid.uuid4()
    won = rows.update(
        claimed_by=worker,
        claim_token=token,
        lease_until=now + dt.timedelta(seconds=lease_seconds),
        attempts=F("attempts") + 1,
        **changes,
    )
    return token if won == 1 else None


def renew(rows: QuerySet[Any], tokens: Iterable[uuid.UUID], *, lease_seconds: float) -> set[Any]:
    """Extend the leases of `tokens` among `rows`; return the primary keys that are still held.

    Keys, not tokens: the rows of one batch share a token, and one of them may have been lost alone.
    """
    held = rows.filter(claim_token__in=set(tokens))
    held.update(lease_until=database_now() + dt.timedelta(seconds=lease_seconds))
    return set(held.values_list("pk", flat=True))


def free(*, spend_attempt: bool, not_before: dt.datetime | None = None) -> dict[str, Any]:
    """Return the columns that free a claim; `spend_attempt` False takes its attempt back."""
    columns: dict[str, Any] = {
        "claimed_by": "",
        "claim_token": None,
        "lease_until": None,
        "sent_at": None,
    }
    if not spend_attempt:
        columns["attempts"] = F("attempts") - 1
    if not_before is not None:
        columns["not_before"] = not_before
    return columns


def expired(now: dt.datetime) -> Q:
    """Return the condition of a claim whose lease has run out."""
    return Q(claim_token__isnull=False, lease_until__lt=now)
