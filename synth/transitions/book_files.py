"""Move the files of books: ask for one, and finish it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from synth.jobs.removal import lock_jobs
from synth.jobs.work import Kind
from synth.models import BookFile, RenderJob
from synth.transitions.enqueue import enqueue
from ttsweb import leases
from ttsweb.leases import Claim
from voices.objects import delete_objects_on_commit

Status = BookFile.Status
MOST_FILES = 1000  # of one book
_OPEN = (Status.QUEUED, Status.CLAIMED)
_UNMADE: Mapping[str, Any] = {
    "key": "",
    "size_bytes": 0,
    "sha256": "",
    "duration_seconds": 0.0,
    "report": {},
    "content_digest": "",
    "error_code": "",
    "error_message": "",
    "finished_at": None,
}


class TooManyFilesError(Exception):
    """A book has as many files as one may have."""


def ask_for_file(
    job_id: uuid.UUID,
    kind: str,
    options: Mapping[str, Any],
    *,
    options_digest: str,
    content_digest: str,
    is_partial: bool,
    gone: uuid.UUID | None = None,
) -> BookFile | None:
    """Return the row of a file, which is made unless it is there and of the takes of now.

    Args:
        content_digest: of what the file would be made of now.
        is_partial: it may be made of the chapters that are complete.
        gone: the file whose object the storage has lost.

    Returns:
        The row; None when there is no such job any more.

    Raises:
        TooManyFilesError: one more is not kept.
    """
    with transaction.atomic():
        if not lock_jobs(RenderJob.objects.filter(pk=job_id)):
            return None
        files = BookFile.objects.filter(job=job_id)
        row = files.filter(kind=kind, options_digest=options_digest).first()
        if row is None:
            if files.count() >= MOST_FILES:
                raise TooManyFilesError
            row = BookFile.objects.create(
                job_id=job_id,
                kind=kind,
                options=dict(options),
                options_digest=options_digest,
                is_partial=is_partial,
            )
            enqueue(Kind.BOOK_FILE, row.pk)
        elif row.status in _OPEN:
            files.filter(pk=row.pk, status__in=_OPEN).update(is_partial=is_partial)
        elif (
            row.status == Status.FAILED
            or row.content_digest != content_digest
            or row.pk == gone
        ):  # fmt: skip
            _make_again(row, is_partial=is_partial)
        row.refresh_from_db()
    return row


def _make_again(row: BookFile, *, is_partial: bool) -> None:
    """Move DONE or FAILED -> QUEUED; the file so far goes."""
    moved = BookFile.objects.filter(pk=row.pk, status=row.status).update(
        status=Status.QUEUED,
        is_partial=is_partial,
        **leases.untried(),
        **_UNMADE,
    )
    if moved:
        delete_objects_on_commit([row.key] if row.key else [])
        enqueue(Kind.BOOK_FILE, row.pk)


def claimable_book_files() -> QuerySet[BookFile]:
    """Return the files that wait for a CPU worker now, those of urgent books first."""
    return leases.claimable(BookFile).order_by("job__priority", "created_at")


def finish_book_file(claim: Claim, facts: Mapping[str, Any]) -> bool:
    """Publish a file: CLAIMED -> DONE; False when the claim is gone.

    Args:
        facts: key, size_bytes, sha256, duration_seconds, report, content_digest, is_partial.
    """
    return leases.end(BookFile, claim, Status.DONE, error_code="", error_message="", **facts)
