"""What workers do with each kind of work: which rows wait, how one fails, what performs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db.models import Q, QuerySet
from django.utils.module_loading import import_string

from synth.models import BookFile, JobVoice, Segment
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
from ttsweb.work import Kind
from voices.models import VoiceVersion
from voices.transitions import (
    claimable_transcripts,
    claimable_versions,
    fail_transcript,
    fail_version,
)


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
        claimable_versions, _fail_version, "workers.rendering.encode.encode_voice_version"
    ),
    Kind.TRANSCRIPT: Work(
        claimable_transcripts, fail_transcript, "workers.rendering.propose.propose_transcript"
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
        claimable_deliveries, fail_delivery, "workers.webhook.deliver", free_lost_deliveries
    ),
}


def settle_lost(kind: Kind, lost: Q) -> int:
    """Give back, or fail after too many losses, the claims that meet `lost`; return how many."""
    work = WORKS[kind]
    if work.settle_lost is not None:
        return work.settle_lost(lost)
    return leases.settle_lost(kind.model, lost, fail=work.fail)
