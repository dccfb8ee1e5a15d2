"""What workers do with each kind of work: which rows wait, what performs it, what an error means.

Claimed work that met an error waits, is tried again, or fails with why.

Each round of periodic work, which has no lease, is given to one worker; the clock is a column.
"""

from __future__ import annotations

import datetime as dt
import errno
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist
from django.db import connection
from django.db.models import Q, QuerySet
from django.utils.module_loading import import_string

from synth.contract import CodedError
from synth.models import BookFile, JobVoice, Segment, SweepTurn
from synth.transitions.files import (
    claimable_book_files,
    claimable_books,
    claimable_exports,
    fail_book,
    fail_export,
)
from synth.transitions.jobs import UNFINISHED, fail_jobs_of_failed_versions
from synth.transitions.segments import free_lost_segments, keep_or_fail_segment
from synth.transitions.webhooks import claimable_deliveries, fail_delivery, free_lost_deliveries
from ttsweb import leases
from ttsweb.leases import DATABASE_AWAY
from ttsweb.log_format import log_context
from ttsweb.storage import StorageAwayError
from ttsweb.work import Kind
from voices.models import VoiceVersion
from voices.transitions import (
    claimable_transcripts,
    claimable_versions,
    fail_transcript,
    fail_version,
)
from workers.process.held_claims import HeldClaim, WorkUnwantedError

if TYPE_CHECKING:
    from workers.process.worker_process import WorkerProcess  # it settles with this module


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Work:
    """What is particular to a kind of work.

    Attributes:
        waiting: the rows to be done now, most urgent first.
        fail: called with a claim, `code` and `message`.
        performer: the path of what does claimed work, which may import the engine.
        settle_lost: frees lost claims, where it is not only `leases.settle_lost`.
    """

    waiting: Callable[[], QuerySet[Any]]
    fail: Callable[..., bool]
    performer: str
    settle_lost: Callable[[Q], int] | None = None

    @property
    def perform(self) -> Callable[..., None]:
        """Return what does claimed work; imported here, since a CPU worker has no engine."""
        found: Callable[..., None] = import_string(self.performer)
        return found


def _waiting_segments() -> QuerySet[Segment]:
    """Return the segments that wait for nothing but a worker, whatever codec it has."""
    unready = JobVoice.objects.exclude(version__status=VoiceVersion.Status.READY)
    open_rows = leases.claimable(Segment).filter(job__status__in=UNFINISHED)
    return open_rows.exclude(job__voices__in=unready).order_by("pk")


def _fail_version(claim: leases.Claim, *, code: str, message: str) -> bool:
    """Fail a version and, at once, the jobs that wait for it."""
    failed = fail_version(claim, code=code, message=message)
    if failed:
        fail_jobs_of_failed_versions()
    return failed


# In the order in which a worker looks for them.
WORKS: dict[Kind, Work] = {
    Kind.VERSION: Work(
        claimable_versions, _fail_version, "workers.rendering.uploads.encode_voice_version"
    ),
    Kind.TRANSCRIPT: Work(
        claimable_transcripts, fail_transcript, "workers.rendering.uploads.propose_transcript"
    ),
    Kind.SEGMENT: Work(
        _waiting_segments,
        keep_or_fail_segment,
        "workers.rendering.render.begin_segments",
        free_lost_segments,
    ),
    Kind.EXPORT: Work(claimable_exports, fail_export, "workers.assemble.assemble"),
    Kind.BOOK: Work(claimable_books, fail_book, "workers.books.importing.import_book"),
    Kind.BOOK_FILE: Work(
        claimable_book_files, partial(leases.fail, BookFile), "workers.books.files.make_book_file"
    ),
    Kind.DELIVERY: Work(
        claimable_deliveries, fail_delivery, "workers.delivery.deliver", free_lost_deliveries
    ),
}


def settle_lost(kind: Kind, lost: Q) -> int:
    """Give back, or fail after too many losses, the claims that meet `lost`; return how many."""
    work = WORKS[kind]
    if work.settle_lost is not None:
        return work.settle_lost(lost)
    return leases.settle_lost(kind.model, lost, fail=work.fail)


def open_turn(name: str) -> SweepTurn:
    """Start the clock of a kind of work that was never done here, so that a lateness shows."""
    start = {"next_at": leases.database_now()}
    return SweepTurn.objects.get_or_create(name=name, defaults=start)[0]


def take_turn(name: str, *, seconds: float) -> dt.timedelta | None:
    """Return by how much this kind of work is overdue if the round is ours, else None.

    The next round is `seconds` later.
    """
    turn, now = open_turn(name), leases.database_now()
    ours = SweepTurn.objects.filter(pk=name, next_at__lte=now, next_at=turn.next_at).update(
        next_at=now + dt.timedelta(seconds=seconds)
    )
    return now - turn.next_at if ours else None


def postpone_turn(name: str, *, seconds: float) -> None:
    """Have the next round of a kind of work no sooner than in `seconds`."""
    SweepTurn.objects.filter(pk=name).update(
        next_at=leases.database_now() + dt.timedelta(seconds=seconds)
    )


class SiteAwayError(Exception):
    """A remote worker gets no answer of its site at the moment."""


class SiteRefusedError(SiteAwayError):
    """The site does not let this worker in, and will not by itself; the text says why."""


SITE_AWAY = (*DATABASE_AWAY, SiteAwayError)
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
RETRY_SECONDS = 0.5
STORAGE_RETRY_SECONDS = 2.0
PATIENT_LEASES = 10

Result = TypeVar("Result")


def is_disk_full(error: BaseException) -> bool:
    """Return whether a write failed because there is no room for it."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def is_outage(error: BaseException) -> bool:
    """Return whether the same work may well pass later, so that no attempt is to be spent on it.

    A missing file is not an outage: waiting brings it back only where a folder was not mounted.
    """
    if isinstance(error, SITE_AWAY):
        return True
    return isinstance(error, OSError) and not isinstance(error, FileNotFoundError)


# None in a worker, which has the time to wait; a web process lets its caller try again.
patience: ContextVar[float | None] = ContextVar("patience", default=None)


def retry_while_away(write: Callable[[], Result], *, seconds: float | None = None) -> Result:
    """Run a short step again and again while the database, the storage or the whole site is away.

    What was rendered is worth more than the wait; the step is fenced, so a late one does no harm.

    Args:
        seconds: after so long it gives up; None is ten leases. `patience` goes before it.

    Raises:
        SITE_AWAY, StorageAwayError: the database, the storage or the site stayed away.
    """
    wait = PATIENT_LEASES * settings.LEASE_SECONDS if seconds is None else seconds
    most = patience.get()
    wait = wait if most is None else min(wait, most)
    deadline = time.monotonic() + wait
    while True:
        try:
            return write()
        except SITE_AWAY as error:
            connection.close()
            if time.monotonic() >= deadline or isinstance(error, SiteRefusedError):
                raise
            logger.warning("no answer, trying again: %s", type(error).__name__)
            time.sleep(RETRY_SECONDS)
        except StorageAwayError as error:
            if is_disk_full(error) or time.monotonic() >= deadline:
                raise
            logger.warning("trying again: %s", error)
            time.sleep(STORAGE_RETRY_SECONDS)


OUTAGE_DELAY_SECONDS = 5.0
RETRY_DELAY_SECONDS = 2.0  # doubled by every attempt that was spent
UNEXPECTED_MESSAGE = "This work failed unexpectedly; the worker's log has the details."

# Settles an error that its kind of work knows, and returns whether the claim was still ours; None
# for one that it does not know. What is coded says itself whether another attempt can help.
Known = Callable[[HeldClaim, Exception], bool | None]


def settle_error(process: WorkerProcess, claim: HeldClaim, error: Exception, known: Known) -> None:
    """Write what an error means for a claim and forget the claim, waiting for the database.

    Nothing is written while the process hands its claims back.
    """
    if process.handing_back.is_set():
        return
    process.site.settle_error(claim, error, known)
    process.held.drop(claim)


def settle(
    claim: HeldClaim, error: Exception, known: Known, *, pause: Callable[[str], None]
) -> None:
    """Write what an error means for a claim; each step is fenced and may be repeated.

    Args:
        pause: called with a sentence where nothing more is to be begun for a moment.
    """
    context = log_context.set(f"{claim.kind.label}={claim.pk}")
    try:
        if not retry_while_away(partial(_settle, claim, error, known, pause)):
            logger.info("%s was taken over or removed meanwhile", claim.kind.label)
    finally:
        log_context.reset(context)


@contextmanager
def settle_errors(process: WorkerProcess, claim: HeldClaim, known: Known) -> Iterator[None]:
    """Settle what goes wrong in a `with` block by its claim, and forget the claim after it."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        settle_error(process, claim, error, known)
    finally:
        process.held.drop(claim)


def wait(claim: HeldClaim, *, seconds: float = 0.0) -> bool:
    """Hand a claim back at no attempt; False when it is gone."""
    return leases.hand_back(claim.kind.model, claim, delay_seconds=seconds)


def fail(claim: HeldClaim, code: str, message: str) -> bool:
    """Fail a row with why; False when the claim is gone."""
    logger.info("%s failed: code=%s", claim.kind.label, code)
    return WORKS[claim.kind].fail(claim, code=code, message=message)


def retry(claim: HeldClaim, code: str, message: str) -> bool:
    """Hand a claim back for another attempt, or fail its row after the last; False when gone."""
    row = leases.held(claim.kind.model, claim).values_list("attempts", flat=True).first()
    if row is None:
        return False
    if row >= settings.MAX_ATTEMPTS:
        return fail(claim, code, message)
    delay = RETRY_DELAY_SECONDS * 2**row
    return leases.hand_back(claim.kind.model, claim, delay_seconds=delay, spend_attempt=True)


def _settle(claim: HeldClaim, error: Exception, known: Known, pause: Callable[[str], None]) -> bool:
    if claim.is_lost or isinstance(error, (ObjectDoesNotExist, WorkUnwantedError)):
        return False
    settled = known(claim, error)
    if settled is not None:
        return settled
    if isinstance(error, CodedError):
        return (retry if error.retryable else fail)(claim, error.code, str(error))
    if is_outage(error):
        logger.warning("%s waits for an outage to end: %s", claim.kind.label, error)
        if is_disk_full(error):
            pause("The worker's disk is full, so nothing can be stored; free some space.")
        elif isinstance(error, StorageAwayError):
            pause(f"No new work is started: {error}")
        return wait(claim, seconds=OUTAGE_DELAY_SECONDS)
    logger.error("%s failed unexpectedly", claim.kind.label, exc_info=error)
    return retry(claim, "unexpected_error", UNEXPECTED_MESSAGE)
