"""Name the address of one row, and count the time of a wait."""

from __future__ import annotations

import time
import uuid

from ttsweb.client.errors import NotFoundError, WaitTimeoutError


def path_of(kind: str, row_id: str, rest: str = "") -> str:
    """Return the path of one row.

    Raises:
        NotFoundError: what is no id would be another address.
    """
    if not is_id(row_id):
        noun = "batch" if kind == "batches" else kind.removesuffix("s")
        raise NotFoundError(404, f"{noun}_not_found", f"{row_id!r} is not the id of a {noun}.")
    return f"/api/v1/{kind}/{uuid.UUID(row_id)}{rest}"


def is_id(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def deadline_after(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


def within(deadline: float | None, seconds: float, what: str) -> float:
    """Return `seconds`, cut to what is left until the deadline.

    Raises:
        WaitTimeoutError: nothing is left.
    """
    if deadline is None:
        return seconds
    left = deadline - time.monotonic()
    if left <= 0:
        raise WaitTimeoutError(
            "wait_timeout", f"Waiting for {what} timed out; try again, or allow more time."
        )
    return min(seconds, left)
