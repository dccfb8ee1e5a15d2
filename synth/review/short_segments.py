"""Know which segments of partial books are too short, without looking at all of them each time."""

from __future__ import annotations

import datetime as dt
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

from django.db.models import FloatField, Q, QuerySet, Value
from django.db.models.functions import Cast, Length, Replace

from synth.bookshelf.proof import MOST_CHARS_PER_SECOND
from synth.models import RenderJob, Segment
from synth.transitions.approving import BOOK_SEGMENTS_SHORT

MOST_JOBS = 1000  # that are remembered
MOST_IDS = 1000  # in one condition; databases bound how many values a query has
_PARTIAL = {"status": RenderJob.Status.PARTIAL, "error_code": BOOK_SEGMENTS_SHORT}
# As the proof of a book has it: nobody speaks so fast.
_IS_SHORT = Q(
    status=Segment.Status.DONE,
    is_hand_picked=False,
    take__audio_seconds__lt=Cast(
        Length(Replace("spoken_text", Value(" "), Value(""))), FloatField()
    )
    / Value(MOST_CHARS_PER_SECOND),
)
_Key = tuple[uuid.UUID, dt.datetime]


class _Known:
    """Remember the short segments of jobs as they were last changed; the least used go first."""

    def __init__(self) -> None:
        self._found: OrderedDict[_Key, tuple[int, ...]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: _Key) -> tuple[int, ...] | None:
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def put(self, key: _Key, ids: tuple[int, ...]) -> None:
        with self._lock:
            self._found[key] = ids
            while len(self._found) > MOST_JOBS:
                self._found.popitem(last=False)


_known = _Known()


def short_among(jobs: QuerySet[RenderJob]) -> Q:
    """Return the condition for segments that are too short, of those jobs that are partial for it.

    A job's row is written whenever a segment of it is approved, chosen or rendered again, so that
    what was found holds for as long as `updated_at` does. Beyond MOST_IDS the database looks again.
    """
    keys = list(jobs.filter(**_PARTIAL).order_by().values_list("pk", "updated_at"))
    found = {key: _known.get(key) for key in keys}
    unknown = [key for key, ids in found.items() if ids is None]
    if unknown:
        found |= _look(unknown)
    ids = [one for some in found.values() for one in some or ()]
    if len(ids) <= MOST_IDS:
        return Q(pk__in=ids)
    return _IS_SHORT & Q(job__in=[pk for pk, _ in keys])


def _look(keys: Sequence[_Key]) -> dict[_Key, tuple[int, ...]]:
    jobs = dict(keys)
    rows = Segment.objects.filter(_IS_SHORT, job__in=list(jobs)).order_by()
    found: dict[uuid.UUID, list[int]] = {pk: [] for pk in jobs}
    # With the moment of the job as it is now: one that has moved since is not remembered.
    for job_id, updated_at, pk in rows.values_list("job", "job__updated_at", "pk"):
        if updated_at == jobs[job_id]:
            found[job_id].append(pk)
    for key in keys:
        _known.put(key, tuple(found[key[0]]))
    return {key: tuple(found[key[0]]) for key in keys}
