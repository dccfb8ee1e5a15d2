"""Wait for what a server works on, by polls that it keeps back until the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from ttsweb.client.errors import retry_after_of
from ttsweb.client.http import WAIT_RETRIES, Http, read_json
from ttsweb.client.paths import deadline_after, within
from ttsweb.client.types import JOB_FINAL

POLL_SECONDS = 25.0  # how long the server is asked to keep an answer back
UPDATE_SECONDS = 1.0  # the same where somebody watches
Work = TypeVar("Work")


def poll_work(http: Http, path: str, seconds: float, *, final: Collection[str] = JOB_FINAL) -> Any:
    """Return a job, a batch or a voice once it has ended or about so many seconds are over.

    Args:
        final: the statuses in which it has ended.
    """
    started = time.monotonic()
    answer = http.get(path, {"wait": f"{seconds:.3f}"}, wait_seconds=seconds, retries=WAIT_RETRIES)
    work = read_json(answer)
    if work["status"] not in final:
        # A server with too many waiting polls answers at once.
        pause = min(seconds, retry_after_of(answer) or 0.0)
        http.sleep(max(0.0, pause - (time.monotonic() - started)))
    return work


def wait_for_end(
    poll: Callable[[float], Work],
    status_of: Callable[[Work], str],
    what: str,
    *,
    timeout: float | None,
    on_update: Callable[[Work], None] | None,
    final: Collection[str] = JOB_FINAL,
) -> Work:
    """Poll until the end; `on_update` is called about once a second, `what` names it in the error.

    Raises:
        WaitTimeoutError: it had not ended after `timeout` seconds; it goes on.
    """
    deadline = deadline_after(timeout)
    longest = UPDATE_SECONDS if on_update is not None else POLL_SECONDS
    while True:
        work = poll(within(deadline, longest, what))
        if on_update is not None:
            on_update(work)
        if status_of(work) in final:
            return work
