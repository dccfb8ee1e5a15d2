"""Renew the leases of what this process holds, as long as its work moves."""

from __future__ import annotations

import logging
import os

from django.conf import settings

from ttsweb import leases
from workers.process.held_claims import Kind
from workers.process.worker_process import WorkerProcess

logger = logging.getLogger(__name__)

BEATS_PER_LEASE = 4
# In beats, not seconds: a process that was suspended must not take that for a hung engine.
STILL_BEATS = BEATS_PER_LEASE  # one step of the engine may take as long as a lease
HUNG_BEATS = 4 * BEATS_PER_LEASE


class Heartbeat:
    """Renew claims every quarter of a lease; one thread calls `beat`."""

    def __init__(self, process: WorkerProcess) -> None:
        self.process = process
        self._last_steps = -1
        self._still_beats = 0

    def beat(self) -> None:
        """Renew what is held and abandon what is no longer ours.

        A busy engine whose step counter stood still for a whole lease renews nothing that depends
        on it: its leases run out and another worker takes over. If it hangs on, the process ends.
        """
        self._still_beats = self._still_beats + 1 if self._engine_stands_still() else 0
        self._report_stillness()
        for kind in Kind:
            if not kind.needs_engine or self._still_beats < STILL_BEATS:
                self._renew(kind)

    def _engine_stands_still(self) -> bool:
        if not self.process.host.is_ready:
            return False
        engine = self.process.host.engine
        steps, self._last_steps = self._last_steps, engine.steps
        return engine.is_busy and steps == engine.steps

    def _report_stillness(self) -> None:
        if self._still_beats >= HUNG_BEATS:
            end_process("the engine does not respond; a supervisor can start this worker again")
        is_still = self._still_beats >= STILL_BEATS
        sentence = "The engine is busy but makes no progress." if is_still else ""
        if self.process.status.trouble("engine", sentence) and is_still:
            logger.error("engine makes no progress: beats=%d", self._still_beats)

    def _renew(self, kind: Kind) -> None:
        claims = self.process.held.of(kind)
        if not claims:
            return
        rows = kind.model._default_manager.filter(pk__in=[claim.pk for claim in claims])
        ours = leases.renew(
            rows, [claim.token for claim in claims], lease_seconds=settings.LEASE_SECONDS
        )
        for claim in claims:
            if claim.pk not in ours and not claim.is_lost:
                logger.info("claim lost: %s %s", kind.label, claim.pk)
                claim.abandon()


def end_process(reason: str) -> None:
    """End this process at once: what it holds is freed when the leases run out."""
    logger.critical("worker ends itself: %s", reason)
    logging.shutdown()
    os._exit(1)
