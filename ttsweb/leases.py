"""The life of a lease for rows of every kind: claim, renew, finish, fail, hand back, free the lost.

A claim is a token. Whoever holds the token may renew, finish or release; a late worker's token no
longer matches, so its UPDATE changes nothing. No clock is kept in memory: expiry is a column.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

from django.conf import settings
from django.db import InterfaceError, OperationalError, connection, models, transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

Row = TypeVar("Row", bound=models.Model, covariant=True)
Leased = TypeVar("Leased", bound="LeasedModel")

DATABASE_AWAY = (OperationalError, InterfaceError)  # the same step may well pass later
# A row whose worker ended this often was always beside others; from then on it runs alone.
LOSSES_BESIDE_OTHERS = 2
WORKER_LOST_MESSAGE = (
    "Every worker that took this stopped before it was done, at last with nothing else at work. "
    "Look at the workers' logs, then try again."
)


def database_now() -> dt.datetime:
    """Return the clock of all leases: the database server's, or this host's on SQLite."""
    if connection.vendor != "postgresql":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row = cursor.fetchone()
    moment: dt.datetime = row[0]
    return moment


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
    """Give a row a claim: who works on it, under which token, until when, how often tried.

    A subclass says in which column its state stands ("" where it has none), the states of a row
    that waits, is held and has failed, and the column with the moment at which it ended.
    """

    STATE: ClassVar[str] = "status"
    WAITING: ClassVar[str] = "queued"
    HELD: ClassVar[str] = "claimed"
    FAILED: ClassVar[str] = "failed"
    ENDED_AT: ClassVar[str] = "finished_at"

    claimed_by = models.CharField(max_length=120, blank=True, default="")
    claim_token = models.UUIDField(null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    # How often a worker ended while it held this: see `settle_lost`.
    losses = models.PositiveSmallIntegerField(default=0)
    # By the clock that claims compare it with: another host's may be ahead, and the row would wait.
    not_before = models.DateTimeField(default=database_now)
    # When a message for this row was last sent; the sweep sends again what stays unclaimed.
    sent_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[models.Manager[Self]] = LeasedRows.as_manager()

    class Meta:
        abstract = True


@dataclass(eq=False)
class Claim:
    """A held row: its primary key and the token that fences writes to it."""

    pk: Any
    token: uuid.UUID


AnyClaim = TypeVar("AnyClaim", bound=Claim)


def claimable(model: type[Leased]) -> QuerySet[Leased]:
    """Return the rows that wait for a worker now, in no order."""
    waiting = _state(model, model.WAITING)
    rows = _rows(model).filter(claim_token__isnull=True, not_before__lte=database_now(), **waiting)
    return rows.order_by()


def claim(
    rows: QuerySet[Leased], pks: Sequence[Any], *, worker: str, token: uuid.UUID | None = None
) -> list[Claim]:
    """Claim those of the rows that are still free, in one step; of many callers one gets each.

    They share a token, and each may be lost alone.

    Args:
        rows: a queryset whose filter is the whole condition beside the primary keys.
        token: that of the claims; None makes one.

    Returns:
        The claims, in the order of `pks`.
    """
    model, token = rows.model, token or uuid.uuid4()
    free = rows.order_by().filter(pk__in=pks)
    with transaction.atomic():
        if len(pks) > 1 and connection.features.has_select_for_update_skip_locked:
            # Two workers that claim many at once would else wait for each other.
            locked = free.select_for_update(skip_locked=True).values_list("pk", flat=True)
            free = _rows(model).filter(pk__in=list(locked))
        count = free.update(**claimed(model, worker=worker, token=token))
        won = set(pks)
        if count < len(won):
            mine = _rows(model).filter(pk__in=pks, claim_token=token)
            won = set(mine.values_list("pk", flat=True))
    return [Claim(pk, token) for pk in pks if pk in won]


def claimed(model: type[LeasedModel], *, worker: str, token: uuid.UUID) -> dict[str, Any]:
    return {
        "claimed_by": worker,
        "claim_token": token,
        "lease_until": database_now() + dt.timedelta(seconds=settings.LEASE_SECONDS),
        "attempts": F("attempts") + 1,
        **_state(model, model.HELD),
    }


def renew(rows: QuerySet[Any], tokens: Iterable[uuid.UUID], *, lease_seconds: float) -> set[Any]:
    """Extend the leases of `tokens` among `rows`; return the primary keys that are still held.

    Keys, not tokens: the rows of one batch share a token, and one of them may have been lost alone.
    """
    held = rows.filter(claim_token__in=set(tokens))
    held.update(lease_until=database_now() + dt.timedelta(seconds=lease_seconds))
    return set(held.values_list("pk", flat=True))


def held(model: type[Leased], claim: Claim) -> QuerySet[Leased]:
    return _rows(model).filter(pk=claim.pk, claim_token=claim.token, **_state(model, model.HELD))


def end(model: type[LeasedModel], claim: Claim, state: str, **columns: Any) -> bool:
    """Move a held row to a final state; False when the claim is gone and nothing was changed."""
    if model.ENDED_AT:
        columns.setdefault(model.ENDED_AT, database_now())
    columns = free(spend_attempt=True, is_name_kept=True) | _state(model, state) | columns
    return bool(held(model, claim).update(**columns))


def fail(
    model: type[LeasedModel], claim: Claim, *, code: str, message: str, **columns: Any
) -> bool:
    """Move a held row to its failed state, with why; False when the claim is gone."""
    state = model.FAILED
    return end(model, claim, state, error_code=code, error_message=message, **columns)


def hand_back(
    model: type[LeasedModel],
    claim: Claim,
    *,
    delay_seconds: float = 0.0,
    spend_attempt: bool = False,
    is_lost: bool = False,
    **columns: Any,
) -> bool:
    """Have a held row wait again: shutdown, an outage, an error; False when the claim is gone.

    Args:
        is_lost: the worker that held it is gone; its name stays, so that it knows when it is back.
    """
    not_before = database_now() + dt.timedelta(seconds=delay_seconds)
    freed = free(spend_attempt=spend_attempt, not_before=not_before, is_name_kept=is_lost)
    if is_lost:
        freed["losses"] = F("losses") + 1
    return bool(held(model, claim).update(**freed, **_state(model, model.WAITING), **columns))


def settle_lost(model: type[LeasedModel], lost: Q, *, fail: Callable[..., bool]) -> int:
    """Give back the rows whose claim meets `lost`, with no attempt spent; return how many.

    A worker's end says little of a row that was one of many. After the first it is tried
    beside fewer, after the second alone; what was lost alone `MAX_ATTEMPTS` times fails.

    Args:
        fail: the kind's own way to fail: called with the claim, `code` and `message`.
    """
    most = LOSSES_BESIDE_OTHERS + settings.MAX_ATTEMPTS
    rows = _rows(model).filter(lost, claim_token__isnull=False, **_state(model, model.HELD))
    count = 0
    for pk, token, losses in list(rows.values_list("pk", "claim_token", "losses")):
        if losses + 1 < most:
            count += hand_back(model, Claim(pk, token), is_lost=True)
        else:
            count += fail(Claim(pk, token), code="worker_lost", message=WORKER_LOST_MESSAGE)
    return count


def free(
    *, spend_attempt: bool, not_before: dt.datetime | None = None, is_name_kept: bool = False
) -> dict[str, Any]:
    """Return the columns that free a claim; `spend_attempt` False takes its attempt back.

    The name stays where a row has ended, since pages show who was at it.
    """
    columns: dict[str, Any] = {"claim_token": None, "lease_until": None, "sent_at": None}
    if not is_name_kept:
        columns["claimed_by"] = ""
    if not spend_attempt:
        columns["attempts"] = F("attempts") - 1
    if not_before is not None:
        columns["not_before"] = not_before
    return columns


def untried() -> dict[str, Any]:
    return {"attempts": 0, "losses": 0, "not_before": database_now(), "sent_at": None}


def expired(now: dt.datetime) -> Q:
    return Q(claim_token__isnull=False, lease_until__lt=now)


def _rows(model: type[LeasedModel]) -> QuerySet[Any]:
    return model._default_manager.all()


def _state(model: type[LeasedModel], state: str) -> dict[str, str]:
    return {model.STATE: state} if model.STATE else {}
