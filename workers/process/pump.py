"""Claim rows that no message brought, and look after what is held: the worker's own clockwork."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from django.conf import settings
from django.db import connection

from ttsweb import leases
from ttsweb.work import Kind
from workers.errors import DATABASE_AWAY
from workers.process.claiming import take_segments, take_work
from workers.process.status import resident_bytes
from workers.process.worker_process import WorkerProcess
from workers.sweep import free_ended

# Free bytes that the storage's disk must have: with less, workers start no new work.
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
        stands_still = False
        if self.process.host.is_ready:
            engine = self.process.host.engine
            steps, self._last_steps = self._last_steps, engine.steps
            stands_still = engine.is_busy and steps == engine.steps
        self._still_beats = self._still_beats + 1 if stands_still else 0
        if self._still_beats >= HUNG_BEATS:
            end_process("the engine does not respond; a supervisor can start this worker again")
        is_still = self._still_beats >= STILL_BEATS
        sentence = "The engine is busy but makes no progress." if is_still else ""
        if self.process.status.trouble("engine", sentence) and is_still:
            logger.error("engine makes no progress: beats=%d", self._still_beats)
        for kind in Kind:
            if not (kind.needs_engine and is_still):
                self._renew(kind)

    def _renew(self, kind: Kind) -> None:
        claims = self.process.held.of(kind)
        if not claims:
            return
        rows = kind.model._default_manager.filter(pk__in=[claim.pk for claim in claims])
        tokens = [claim.token for claim in claims]
        ours = leases.renew(rows, tokens, lease_seconds=settings.LEASE_SECONDS)
        for claim in claims:
            if claim.pk not in ours and not claim.is_lost:
                logger.info("claim lost: %s %s", kind.label, claim.pk)
                claim.abandon()


def end_process(reason: str) -> None:
    """End this process at once: what it holds is freed when the leases run out."""
    logger.critical("worker ends itself: %s", reason)
    logging.shutdown()
    os._exit(1)


class LoopThread(threading.Thread):
    """Call `step` every `seconds`, or sooner when `wake` is set, until `stop` is set.

    A database that is away is waited for. The thread has a database connection of its own.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], None],
        *,
        seconds: float,
        stop: threading.Event,
        wake: threading.Event | None = None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._step, self._seconds, self._stopper, self._wake = step, seconds, stop, wake
        self.failures = 0  # in a row
        self.failing_since = 0.0  # monotonic clock; meaningful while `failures` is above 0

    def has_failed_for(self, seconds: float) -> bool:
        """Return whether every step of at least that long failed, or the thread is gone.

        Several failures are asked for, since a process that was stopped for a while fails once.
        """
        if not self.is_alive():
            return not self._stopper.is_set()
        return self.failures > 3 and time.monotonic() - self.failing_since > seconds

    def run(self) -> None:
        while not self._stopper.is_set():
            self._run_step()
            (self._wake or self._stopper).wait(self._seconds)
            if self._wake is not None:
                self._wake.clear()
        connection.close()

    def _run_step(self) -> None:
        try:
            self._step()
        except Exception as error:
            if not self.failures:
                self.failing_since = time.monotonic()
            self.failures += 1
            if isinstance(error, DATABASE_AWAY):
                reason = str(error).strip()
                logger.warning("%s: the database does not answer: %s", self.name, reason)
            else:
                logger.exception("%s failed; it continues", self.name)
            connection.close()
        else:
            self.failures = 0


logger = logging.getLogger(__name__)

CARE_SECONDS = 1.0
STOP_SECONDS = 0.5  # unwanted work ends within this time and a frame of the engine
STATUS_SECONDS = 2.0


class Pump:
    """Keep the engine's slots full and the held claims honest; one thread calls `step`."""

    def __init__(self, process: WorkerProcess, heartbeat: LoopThread) -> None:
        self.process, self._heartbeat = process, heartbeat
        self._next_care = 0.0
        self._next_look = 0.0
        self._next_status = 0.0
        self._healthy_since: float | None = None  # None while steps fail

    def step(self) -> None:
        """Claim what there is room for and, about once a second, do everything else.

        Called sooner because the engine wants more, it looks for segments alone: a look for work
        of every kind is ten queries, whose making keeps the interpreter from the engine.

        Raises:
            OperationalError, InterfaceError: the database is away.
        """
        now = time.monotonic()
        healthy_since, self._healthy_since = self._healthy_since or now, None
        if now >= self._next_care:
            self._next_care = now + min(CARE_SECONDS, settings.PUMP_SECONDS)
            self._care()
        is_look_due = self.process.pop_look_due() or now >= self._next_look
        is_look_due = is_look_due or self.process.is_isolating  # until what runs alone has ended
        if is_look_due:
            self._next_look = now + settings.PUMP_SECONDS
        if self.process.may_claim and is_look_due:
            take_work(self.process)
        elif self.process.may_claim and self.process.has_engine_role:
            take_segments(self.process)
        if now >= self._next_status:
            self._next_status = now + STATUS_SECONDS
            self.process.status.write(figures=figures(self.process))
            if free_ended():
                self.process.look_for_work()
        self._healthy_since = healthy_since
        self._check_heartbeat(now - healthy_since)

    def _check_heartbeat(self, healthy_seconds: float) -> None:
        """End the process when only its heartbeat gets no answer from the database, for a lease."""
        lease = settings.LEASE_SECONDS
        if not len(self.process.held) or healthy_seconds < lease:
            return
        if self._heartbeat.has_failed_for(lease):
            end_process("its heartbeat is broken, so it would lose all its work unnoticed")

    def _care(self) -> None:
        watch_disk(self.process)
        if self.process.has_cpu_role:
            self.process.live_filler.look()
        if self.process.codes is not None:
            forget_evicted(self.process, self.process.codes.drop_evicted())
            self.process.codes.counters.flush()


def watch_disk(process: WorkerProcess) -> None:
    """Pause claiming while the storage's disk is nearly full; go on when it is not."""
    folder: Path = settings.STORAGE_DIR
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < settings.MIN_FREE_BYTES:
        process.pause_claims(
            f"No new work is started: the storage's disk has {free / 1e6:.0f} MB "
            f"left, and it needs {settings.MIN_FREE_BYTES / 1e6:.0f} MB. "
            "Free some space; the worker then continues by itself."
        )
    elif process.pause_is_over and process.status.trouble("disk"):
        logger.info("the disk has enough space again, work continues")


def forget_evicted(process: WorkerProcess, evicted: Iterable[str]) -> None:
    """Free what the engine keeps of voices whose clips, named by fingerprint, were evicted."""
    if process.host.is_ready:
        forget = process.host.engine.forget_voice
        process.spoken.forget(evicted, process.held.unrendered(), forget)


def stop_unwanted(process: WorkerProcess) -> None:
    """Stop held work of every kind whose row is gone or not ours any more.

    Whatever makes work unwanted, such as a cancel or the deletion of a voice, takes its claim away.
    """
    for kind in Kind:
        claims = [claim for claim in process.held.of(kind) if not claim.is_lost]
        if not claims:
            continue
        rows = kind.model._default_manager.filter(pk__in=[claim.pk for claim in claims])
        ours = set(rows.values_list("pk", "claim_token"))
        for claim in claims:
            if (claim.pk, claim.token) not in ours:
                logger.debug("stopped work that is no longer wanted: %s=%s", kind.label, claim.pk)
                claim.abandon()


def figures(process: WorkerProcess) -> dict[str, float]:
    """Return the counts that pages show of this worker."""
    found: dict[str, float] = {
        f"{kind.plural}_in_flight": process.held.count(kind) for kind in Kind if kind.task
    }
    if process.codes is not None:
        found["codes_cache_entries"] = len(process.codes.cache)
        found["codes_cache_bytes"] = process.codes.cache.num_bytes
    if process.host.is_ready:
        engine = process.host.engine
        found["slots"] = engine.slots
        described = engine.describe()
        found["slots_in_use"] = int(described.get("slots_in_use", 0))
        frames = int(described.get("frames_made", 0))
        found["frames_per_second"] = round(process.frame_rate.note(frames), 1)
        found["engine_bytes"] = int(described.get("memory", {}).get("held", 0))
    memory = resident_bytes()
    if memory is not None:
        found["memory_bytes"] = memory
    return found
