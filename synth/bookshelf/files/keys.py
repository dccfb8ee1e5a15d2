"""Remember with which Idempotency-Keys a file of a book was asked for, and by which bodies.

They lie beside the file's options, since one file is asked for by any number of requests, and are
shown to nobody; the digest of the options, which names the file, is made without them.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from synth.jobs.rejections import SubmitRejectedError
from synth.models import BookFile

MOST_KEYS = 20  # of one file; the oldest is forgotten
_ASKED_BY = "asked_by"


class Asking(NamedTuple):
    """Hold the key of a request and the digest of its body; without a key both are empty."""

    key: str = ""
    body_digest: str = ""


def made_before(job_id: uuid.UUID, asking: Asking) -> BookFile | None:
    """Return the file of a book that this key has asked for.

    Raises:
        SubmitRejectedError: idempotency_key_reused, the key came with another body.
    """
    if not asking.key:
        return None
    name = _digest(asking.key)
    rows = BookFile.objects.filter(job=job_id, options__has_key=_ASKED_BY).order_by()
    for pk, pairs in rows.values_list("pk", f"options__{_ASKED_BY}"):
        known = dict(pairs).get(name)
        if known is None:
            continue
        if known != asking.body_digest:
            raise SubmitRejectedError(
                422,
                "idempotency_key_reused",
                f"This Idempotency-Key was used with another body, for the file {pk}. Use a "
                "new key for a new file.",
            )
        return BookFile.objects.filter(pk=pk).first()
    return None


def note_key(row: BookFile, asking: Asking) -> None:
    """Keep that a request with a key has asked for a file; call it with the job's row locked."""
    if not asking.key:
        return
    pair = [_digest(asking.key), asking.body_digest]
    pairs = [one for one in row.options.get(_ASKED_BY, []) if one[0] != pair[0]]
    row.options = {**row.options, _ASKED_BY: [*pairs, pair][-MOST_KEYS:]}
    BookFile.objects.filter(pk=row.pk).update(options=row.options)


def shown_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a file without what is kept beside them."""
    return {name: value for name, value in options.items() if name != _ASKED_BY}


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
