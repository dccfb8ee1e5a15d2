"""Find the batch that a request names."""

from __future__ import annotations

import uuid

from rest_framework.request import Request

from synth.accounts.access import visible_batches
from synth.models import Batch
from ttsweb.http.api import ApiProblem

_MISSING = {
    Batch.Kind.TEXTS: ("batch_not_found", "No batch that you may see has this id."),
    Batch.Kind.BOOKS: (
        "book_batch_not_found",
        "No batch of books that you may see has this id.",
    ),
}


def find_batch(request: Request, batch_id: uuid.UUID, kind: Batch.Kind) -> Batch:
    """Return a batch that this user may see, or raise the 404."""
    batches = visible_batches(request.user, kind).select_related("owner", "api_key")
    batch = batches.filter(pk=batch_id).first()
    if batch is None:
        raise batch_missing(kind)
    return batch


def batch_missing(kind: Batch.Kind) -> ApiProblem:
    """Return the 404 of a batch that is not there, or not for this user."""
    return ApiProblem(404, *_MISSING[kind])
