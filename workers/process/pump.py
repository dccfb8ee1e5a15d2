"""Claim rows that no message brought, and look after what is held: the worker's own clockwork."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterable

from django.conf import settings
from django.db import connection

from synth.models import WorkerStatus
from ttsweb.work import Kind
from workers.kinds import SITE_AWAY, is_outage
from workers.process.claiming import has_engine_work, take_work
from workers.process.held_claims import SpokenVoices
from workers.process.status import resident_bytes
from workers.process.worker_process import WorkerProcess

BEATS_PER_LEASE = 4
# In beats, not seconds: a process that was suspended must not take that for a hung engine.
STILL_BEATS = BEATS_PER_LEASE  # one step of the engine may take as long as a lease
HUNG_BEATS = 4 * BEATS_PER_LEASE
MOST_REST_SECONDS = 0.05


class Heartbeat:
    """Renew claims every quarter of a lease; one thread calls `beat`."""

    def __init__(self, process: WorkerProcess) -> None:
        self.process = process
        self._last_steps = -1
        self._still_beats = 0

    def beat(self) -> None:
        """Renew what is held and abandon what is no longer ours.

        A busy engine whose step counter stood still for a whole lease renews nothing that depends
        on it and gets nothing more: its leases run out and another worker takes over. If it hangs
        on, the process ends.
        """
        stands_still = False
        if (engine := self.process.host.loaded) is not None:
            steps, self._last_steps = self._last_steps, engine.steps
            stands_still = engine.is_busy and steps == engine.steps
        self._still_beats = self._still_beats + 1 if stands_still else 0
        if self._still_beats >= HUNG_BEATS:
            end_process("the engine does not respond; a supervisor can start this worker again")
        self.process.is_engine_still = is_still = self._still_beats >= STILL_BEATS
        sentence = "The engine is busy but makes no progress." if is_still else ""
        if self.process.status.trouble("engine", sentence) and is_still:
            logger.error("engine makes no progress: beats=%d", self._still_beats)
        kinds = [kind for kind in Kind if not (kind.needs_engine and is_still)]
        claims = self.process.held.of(*kinds)
        for claim in self.process.site.renew(claims) if claims else ():
            if not claim.is_lost:
                logger.info("claim lost: %s %s", claim.kind.label, claim.pk)
                claim.abandon()


def end_process(reason: str) -> None:
    """End this process at once: what it holds is freed when the leases run out."""
    logger.critical("worker ends itself: %s", reason)
    logging.shutdown()
    os._exit(1)


class LoopThread(threading.Thread):
    """Call `step` every `seconds`, or sooner when `wake` is set, until `stop` is set.

    A step that returns seconds is called again after those, if not sooner.
    One that can be woken rests after a step for as long as that took, `MOST_REST_SECONDS` at most,
    so that many calls in a row leave the interpreter to the engine for half of the time.
    A database that is away is waited for. The thread has a database connection of its own.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], object],
        *,
        seconds: float,
        stop: threading.Event,
        wake: threading.Event | None = None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._step, self._seconds, self._stopper, self._wake = step, seconds, stop, wake
        self.steps = 0  # that have ended, as they should or not
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
            began = time.monotonic()
            again = self._run_step()
            self.steps += 1
            if self._wake is not None:  # what wakes it meanwhile is done by one step
                self._stopper.wait(min(time.monotonic() - began, MOST_REST_SECONDS))
            (self._wake or self._stopper).wait(min(self._seconds, again))
            if self._wake is not None:
                self._wake.clear()
        connection.close()

    def _run_step(self) -> float:
        seconds = None
        try:
            seconds = self._step()
        except Exception as error:
            if not self.failures:
                self.failing_since = time.monotonic()
            self.failures += 1
            if isinstance(error, SITE_AWAY):
                reason = str(error).strip()
                logger.warning("%s: the site does not answer: %s", self.name, reason)
            elif is_outage(error):
                logger.warning("%s waits for an outage to end: %s", self.name, error)
            else:
                logger.exception("%s failed; it continues", self.name)
            connection.close()
        else:
            self.failures = 0
        return seconds if isinstance(seconds, float) else math.inf


class ThreadWatch:
    """End the process where a thread of it is gone, or a step of one never ends.

    It would keep what it holds, or claim nothing more, and look alive.

    Args:
        looks: how many calls of `look` a step may take. Not seconds: a process that was suspended
            must not take that for a thread that hangs.
    """

    def __init__(self, threads: Iterable[LoopThread], *, looks: int) -> None:
        self._most = looks
        self._seen = {thread: (0, -1) for thread in threads}  # looks, and the steps seen by these

    def look(self) -> None:
        for thread, (looks, steps) in self._seen.items():
            looks = looks + 1 if steps == thread.steps else 0
            self._seen[thread] = looks, thread.steps
            if not thread.is_alive():
                end_process(f"its thread {thread.name} is gone; a supervisor can start it again")
            if looks > self._most:
                end_process(f"its thread {thread.name} hangs; a supervisor can start it again")


logger = logging.getLogger(__name__)
State = WorkerStatus.State

CARE_SECONDS = 1.0
STOP_SECONDS = 0.5  # unwanted work ends within this time and a frame of the engine
HEARD_STOP_SECONDS = 0.1  # while somebody listens, who may cut in
STATUS_SECONDS = 2.0


class Pump:
    """Keep the engine's slots full and the held claims honest; one thread calls `step`."""

    def __init__(self, process: WorkerProcess, heartbeat: LoopThread) -> None:
        self.process, self._heartbeat = process, heartbeat
        self._keeper = EngineKeeper(process)
        self._next_care = 0.0
        self._next_look = 0.0
        self._next_status = 0.0
        self._healthy_since: float | None = None  # None while steps fail

    def step(self) -> float | None:
        """Claim what there is room for and, about once a second, do everything else.

        Returns the seconds after which to look again at the latest, where that is sooner than ever.

        Called sooner because the engine wants more, it looks for segments, and for the kinds that
        `look_for_work` named: a look for work of every kind is ten queries, whose making keeps the
        interpreter from the engine.

        Raises:
            SITE_AWAY: the site does not answer at the moment.
        """
        now = time.monotonic()
        healthy_since, self._healthy_since = self._healthy_since or now, None
        if now >= self._next_care:
            self._next_care = now + min(CARE_SECONDS, settings.PUMP_SECONDS)
            self._care()
        due = self.process.pop_due() | {Kind.SEGMENT}
        # While something runs alone, every step looks whether it has ended.
        is_look_due = now >= self._next_look or self.process.is_isolating or due.issuperset(Kind)
        if is_look_due:
            self._next_look = now + settings.PUMP_SECONDS
        self._keeper.step()
        if self.process.may_claim:
            take_work(self.process, None if is_look_due else due)
        if now >= self._next_status:
            self._next_status = now + STATUS_SECONDS
            self.process.status.write(figures=figures(self.process))
            if self.process.site.free_ended():
                self.process.look_for_work()
        self._healthy_since = healthy_since
        self._check_heartbeat(now - healthy_since)
        return self.process.ahead.put_off(is_urgent=self.process.held.has_interactive()) or None

    def _check_heartbeat(self, healthy_seconds: float) -> None:
        """End the process when only its heartbeat gets no answer from the database, for a lease."""
        lease = self.process.site.lease_seconds
        if not len(self.process.held) or healthy_seconds < lease:
            return
        if self._heartbeat.has_failed_for(lease):
            end_process("its heartbeat is broken, so it would lose all its work unnoticed")

    def _care(self) -> None:
        care = self.process.site.care()
        watch_disk(self.process, care.trouble)
        forget_evicted(self.process, care.evicted)


def watch_disk(process: WorkerProcess, trouble: str) -> None:
    """Pause claiming while the storage's disk is nearly full; go on when it is not."""
    if trouble:
        process.pause_claims(trouble)
    elif process.pause_is_over and process.status.trouble("disk"):
        logger.info("the disk has enough space again, work continues")


def forget_evicted(process: WorkerProcess, evicted: Iterable[str]) -> None:
    """Free what the engine keeps of voices whose clips, named by fingerprint, were evicted."""
    if (engine := process.host.loaded) is not None:
        process.spoken.forget(evicted, process.held.unrendered(), engine.forget_voice)


RELOAD_PAUSE_SECONDS = 30.0  # after a load that failed; other workers may take the work meanwhile


class EngineKeeper:
    """Close an engine that had nothing to do for long, load one when work waits; the pump steps."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self._used_at = time.monotonic()
        self._next_load_at = 0.0
        self._loading: threading.Thread | None = None

    def step(self) -> None:
        """Look whether the engine is to go, or is missed.

        Raises:
            OperationalError, InterfaceError: the database is away.
        """
        process, now = self._process, time.monotonic()
        if not process.has_engine_role or (self._loading is not None and self._loading.is_alive()):
            return
        engine = process.host.loaded
        if engine is None:
            was_loaded = bool(process.host.codec_fingerprint)
            is_time = process.may_claim and now >= self._next_load_at
            if was_loaded and is_time and has_engine_work(process):
                process.status.state = State.WARMING
                process.status.write()
                self._loading = threading.Thread(target=self._load, name="load", daemon=True)
                self._loading.start()
        elif not settings.IDLE_UNLOAD_SECONDS or engine.is_busy or process.holds_engine_work:
            self._used_at = now
        elif now - self._used_at >= settings.IDLE_UNLOAD_SECONDS:
            self._used_at = now
            if not has_engine_work(process):
                self._release()

    def _release(self) -> None:
        process = self._process
        with process.claim_lock:  # nobody claims for an engine that goes
            if process.holds_engine_work:
                return
            before = resident_bytes() or 0
            process.host.release()
            process.status.state = State.UNLOADED  # after it, for who writes the row meanwhile
        process.spoken = SpokenVoices()
        freed = before - (resident_bytes() or 0)
        logger.info("engine unloaded, the next work loads it: freed_bytes=%d", freed)
        process.status.write(figures=figures(process))

    def _load(self) -> None:
        process = self._process
        try:
            process.status.describe_engine(process.host.start())
            process.status.trouble("load")
            process.status.state = State.READY
        except Exception as error:
            logger.exception("the engine cannot be loaded again")
            self._next_load_at = time.monotonic() + RELOAD_PAUSE_SECONDS
            text = f"The engine could not be loaded again; that is tried every half minute. {error}"
            process.status.trouble("load", text)
            process.status.state = State.FAILED
        self._used_at = time.monotonic()
        process.look_for_work()


class UnwantedStop:
    """Stop unwanted work twice a second, and sooner while somebody listens; one thread steps."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self._next_look = 0.0

    def step(self) -> None:
        now = time.monotonic()
        is_heard = any(claim.take_id is not None for claim in self._process.held.unrendered())
        if now >= self._next_look or is_heard:
            self._next_look = now + STOP_SECONDS
            stop_unwanted(self._process)


def stop_unwanted(process: WorkerProcess) -> None:
    """Stop held work of every kind whose row is gone or not ours any more.

    Whatever makes work unwanted, such as a cancel or the deletion of a voice, takes its claim away.
    """
    claims = [claim for claim in process.held.of(*Kind) if not claim.is_lost]
    for claim in process.site.find_lost(claims) if claims else ():
        logger.debug("stopped work that is no longer wanted: %s=%s", claim.kind.label, claim.pk)
        claim.abandon()


def figures(process: WorkerProcess) -> dict[str, float]:
    """Return the counts that pages show of this worker."""
    found: dict[str, float] = {
        f"{kind.plural}_in_flight": process.held.count(kind) for kind in Kind if kind.task
    }
    if process.codes is not None:
        found["codes_cache_entries"] = len(process.codes.cache)
        found["codes_cache_bytes"] = process.codes.cache.num_bytes
    if process.host.slots:
        found["slots"] = process.host.slots
        found["load_seconds"] = round(process.host.load_seconds, 1)
    if (engine := process.host.loaded) is not None:
        described = engine.describe()
        found["slots_in_use"] = int(described.get("slots_in_use", 0))
        frames = int(described.get("frames_made", 0))
        found["frames_per_second"] = round(process.frame_rate.note(frames), 1)
        found["engine_bytes"] = int(described.get("memory", {}).get("held", 0))
    memory = resident_bytes()
    if memory is not None:
        found["memory_bytes"] = memory
    return found
