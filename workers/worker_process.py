"""Tie together what one worker process has: its name, engine, held claims, codes and threads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connection

from ttsweb.log_format import log_context
from workers.engine_host import EngineHost
from workers.held_claims import HeldClaim, HeldClaims, Kind
from workers.outages import DATABASE_AWAY
from workers.status import StatusReport

if TYPE_CHECKING:
    from workers.codes import CodesLookup

logger = logging.getLogger(__name__)

IN_FLIGHT_PER_SLOT = 2  # the engine finds the next segment waiting whenever a slot gets free
PAUSE_AFTER_FULL_DISK_SECONDS = 5.0


class WorkerProcess:
    """What the pump, the Celery tasks, the heartbeat and the shutdown of one process share.

    Args:
        role: gpu, cpu or all.
        name: unique among living workers; claims carry it.
    """

    def __init__(self, *, name: str, role: str) -> None:
        self.name, self.role = name, role
        self.host = EngineHost()
        self.held = HeldClaims()
        self.status = StatusReport(name=name, role=role, checkpoint=str(settings.CHECKPOINT))
        self.stopping = threading.Event()
        self.handing_back = threading.Event()  # after the drain: whatever comes is not settled
        self.wake = threading.Event()
        self.claim_lock = threading.Lock()  # room is counted and taken in one step
        self.is_isolating = False  # one suspect row runs, or waits to run, alone
        self.scratch: Path = settings.DATA_DIR / "tmp"
        self.codes = _codes_lookup(name) if self.has_engine_role else None
        self._paused_until = 0.0
        self._pools = {
            kind: ThreadPoolExecutor(settings.WORKER_THREADS, thread_name_prefix=kind.value)
            for kind in (Kind.VERSION, Kind.SEGMENT, Kind.EXPORT)
        }

    @property
    def has_engine_role(self) -> bool:
        """Return whether this worker encodes and renders."""
        return self.role in ("gpu", "all")

    @property
    def has_cpu_role(self) -> bool:
        """Return whether this worker makes files."""
        return self.role in ("cpu", "all")

    @property
    def may_claim(self) -> bool:
        """Return whether new work may be taken at this moment."""
        return not self.stopping.is_set() and self.pause_is_over

    @property
    def pause_is_over(self) -> bool:
        """Return whether no pause of claiming is running."""
        return time.monotonic() >= self._paused_until

    def pause_claims(
        self, sentence: str, *, seconds: float = PAUSE_AFTER_FULL_DISK_SECONDS
    ) -> None:
        """Claim nothing for a moment and say why; a pause ends by itself."""
        self._paused_until = time.monotonic() + seconds
        if self.status.trouble("disk", sentence):
            logger.error("claiming paused: %s", sentence)

    def room(self, kind: Kind) -> int:
        """Return how many more claims of a kind this process can put to use."""
        if not self.may_claim or (kind is not Kind.EXPORT and not self.host.is_ready):
            return 0
        limit = settings.WORKER_THREADS
        if kind is Kind.SEGMENT:
            limit = IN_FLIGHT_PER_SLOT * settings.ENGINE_SLOTS
        return max(0, limit - self.held.count(kind))

    def run(self, claim: HeldClaim, work: Callable[..., None], *arguments: Any) -> None:
        """Run `work(self, claim, *arguments)` in a thread for claims of that kind.

        What it raises is logged once; its claim is then left to expire, and the sweep frees it.
        """
        try:
            self._pools[claim.kind].submit(self._run, claim, work, arguments)
        except RuntimeError:  # the pool is shut: the process ends and hands its claims back
            logger.debug("not run, the worker stops: %s %s", claim.kind.value, claim.pk)

    def _run(self, claim: HeldClaim, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        context = log_context.set(f"{claim.kind.value}={claim.pk}")
        try:
            work(self, claim, *arguments)
        except Exception as error:
            self.held.drop(claim)
            if isinstance(error, DATABASE_AWAY):
                logger.warning("left to expire, the database is away: %s", error)
                connection.close()
            else:
                logger.exception("left to expire after an unexpected error")
        finally:
            log_context.reset(context)
            self.wake.set()


def _codes_lookup(worker: str) -> CodesLookup:
    """Return an empty lookup; a CPU worker has none, nor the packages that it needs."""
    from workers.codes import CodesLookup
    from workers.codes_cache import CodesCache
    from workers.counters import Counters

    cache = CodesCache(max_bytes=settings.CODES_CACHE_BYTES, max_clips=settings.CODES_CACHE_CLIPS)
    return CodesLookup(cache, Counters(), worker=worker)
