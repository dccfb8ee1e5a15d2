"""Stop a worker: finish what can be finished, hand the rest back, say good-bye, and go."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from django.conf import settings
from django.db import connection

from synth.models import WorkerStatus
from ttsweb import leases
from workers.process.held_claims import HeldClaim, Kind
from workers.process.worker_process import WorkerProcess

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.05
LAST_WORDS_SECONDS = 3.0
LAST_OBJECTS_SECONDS = 3.0  # for a take that is being stored


def drain(process: WorkerProcess, *, hurry: threading.Event) -> None:
    """Claim nothing more, wait for what runs (until `hurry` is set), hand back what is left.

    Returns after `TTS_DRAIN_SECONDS` and a little at the latest; whatever still hangs in a thread
    then is the caller's to end with the process. Attempts are not spent.
    """
    process.stopping.set()
    process.status.state = WorkerStatus.State.DRAINING
    with process.claim_lock, process.exports_lock:  # what is being claimed now is held from here on
        pass
    deadline = time.monotonic() + settings.DRAIN_SECONDS
    while len(process.held) and time.monotonic() < deadline and not hurry.is_set():
        time.sleep(POLL_SECONDS)
    process.handing_back.set()
    # In a thread: a database that is away must not keep a stopping process alive.
    last_words = threading.Thread(target=_last_words, args=(process,), daemon=True)
    last_words.start()
    last_words.join(LAST_WORDS_SECONDS)
    until = time.monotonic() + LAST_OBJECTS_SECONDS
    queues = (process.rendered, process.rendered_first)
    if not all(queue.wait_idle(until - time.monotonic()) for queue in queues):
        logger.warning("storing did not end in time: `./tts orphans` finds objects that are left")


def _last_words(process: WorkerProcess) -> None:
    with process.claim_lock, process.exports_lock:  # what is being won now is ours to hand back
        claims = process.held.of(*Kind)
    for claim in claims:
        claim.stop()
        _try(lambda claim=claim: hand_back(claim))  # type: ignore[misc]
    if process.codes is not None:
        _try(process.codes.counters.flush)
    process.status.state = WorkerStatus.State.STOPPED
    _try(process.status.write)
    logger.info("worker stopped: handed_back=%d", len(claims))
    connection.close()


def hand_back(claim: HeldClaim) -> None:
    """Give one claim back, so that another worker can start on it at once."""
    leases.hand_back(claim.kind.model, claim.fence)


def _try(step: Callable[[], object]) -> None:
    """Do one of the last steps; what fails here is put right by the sweep."""
    try:
        step()
    except Exception as error:
        logger.warning("not done, as the worker is stopping: %s", error)
