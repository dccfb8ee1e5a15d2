"""Change how long the pauses of a book are, before its start and after it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from synth.jobs.rejections import SubmitRejectedError
from synth.models import BookSource, RenderJob, Segment
from synth.text.pauses import Pauses, pause_lengths
from synth.transitions.books import change_options
from synth.transitions.pauses import change_pauses

_CHUNK = 2000


def set_pauses(book: BookSource, changes: Mapping[str, int | None]) -> None:
    """Change some of a book's pauses; nothing is rendered, a file that is there is made again.

    Args:
        changes: lengths in ms by name; None is the usual one, what is left out stays.

    Raises:
        SubmitRejectedError: pauses_unknown.
    """
    job = book.job
    if job is None:
        if change_options(book.pk, lambda options: _with_pauses(options, changes)):
            return
        job = RenderJob.objects.filter(book=book.pk).first()  # it was started in this moment
        if job is None:
            return
        book.refresh_from_db(fields=["started"])
    while True:
        pauses = _changed(job.pauses, changes)
        if pauses == job.pauses:
            return
        lengths = _lengths(book, job, pause_lengths(Pauses.of(pauses)))
        if change_pauses(job.pk, pauses, lengths, before=job.pauses):
            return
        found = RenderJob.objects.filter(pk=job.pk).first()  # somebody else was faster
        if found is None:
            return
        job = found


def _with_pauses(options: Mapping[str, Any], changes: Mapping[str, int | None]) -> dict[str, Any]:
    """Return the options that the job will get."""
    pauses = _changed(options.get("pauses", {}), changes)
    rest = {name: value for name, value in options.items() if name != "pauses"}
    return rest | ({"pauses": pauses} if pauses else {})


def _lengths(book: BookSource, job: RenderJob, by_kind: tuple[int, ...]) -> dict[int, list[int]]:
    """Return the segments whose pause changes, by its new length.

    Raises:
        SubmitRejectedError: pauses_unknown.
    """
    kinds = [chapter.get("pauses", "") for chapter in book.started.get("chapters", [])]
    rows = Segment.objects.filter(job=job.pk).order_by()
    names = ("pk", "chapter__index", "index", "pause_after_ms")
    found: dict[int, list[int]] = defaultdict(list)
    for pk, chapter, index, so_far in rows.values_list(*names).iterator(chunk_size=_CHUNK):
        known = kinds[chapter] if chapter < len(kinds) else ""
        if index >= len(known):
            raise SubmitRejectedError(
                409,
                "pauses_unknown",
                "This book was started by an earlier version that did not record its "
                "pauses. Upload the book again; audio that was rendered is reused.",
            )
        length = by_kind[int(known[index])]
        if length != so_far:
            found[length].append(pk)
    return found


def _changed(pauses: Mapping[str, int], changes: Mapping[str, int | None]) -> dict[str, int]:
    both = {**pauses, **changes}
    return {name: length for name, length in both.items() if length is not None}
