"""Run one worker process from start to stop: engine first, then the pump, then messages."""

from __future__ import annotations

import datetime as dt
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from celery import current_app
from celery.worker import state as celery_state
from django.conf import settings
from django.db import ProgrammingError, connection

from synth.card import CardError, read_card
from synth.models import WorkerStatus
from synth.telemetry import start as start_telemetry
from synth.telemetry import stop as stop_telemetry
from ttsweb import leases
from ttsweb.commands.base import BaseCommand, CommandError
from ttsweb.pages.health import HEARTBEAT_SECONDS
from ttsweb.work import ROLES, Kind
from workers.kinds import SiteRefusedError, retry_while_away
from workers.process import worker_process
from workers.process.claiming import note_last_losses
from workers.process.pump import (
    BEATS_PER_LEASE,
    CARE_SECONDS,
    HEARD_STOP_SECONDS,
    STATUS_SECONDS,
    Heartbeat,
    LoopThread,
    Pump,
    ThreadWatch,
    UnwantedStop,
)
from workers.process.status import (
    FOLDER,
    SILENT_SECONDS,
    NameLock,
    NameTakenError,
    default_name,
    find_namesake,
    is_name_free,
    lock_names,
)
from workers.process.worker_process import WORKER_THREADS, WorkerProcess
from workers.remote.connection import Connection, SiteFailedError
from workers.remote.options import ROLE, key_for
from workers.remote.site import RemoteSite
from workers.rendering.live_writer import fill_missing

POLL_SECONDS = 0.05
HAND_BACK_SECONDS = 3.0
LAST_OBJECTS_SECONDS = 3.0  # for a take that is being stored


def drain(process: WorkerProcess, *, end_now: threading.Event) -> None:
    """Claim nothing more, wait for what runs (until `end_now` is set), hand back what is left.

    Returns after `DRAIN_SECONDS` and a little at the latest; whatever still hangs in a thread
    then is the caller's to end with the process. Attempts are not spent.
    """
    process.stopping.set()
    process.status.state = WorkerStatus.State.DRAINING
    with process.claim_lock, process.exports_lock:  # what is being claimed now is held from here on
        pass
    deadline = time.monotonic() + settings.DRAIN_SECONDS
    while len(process.held) and time.monotonic() < deadline and not end_now.is_set():
        time.sleep(POLL_SECONDS)
    process.handing_back.set()
    # In a thread: a database that is away must not keep a stopping process alive.
    last_words = threading.Thread(target=_hand_all_back, args=(process,), daemon=True)
    last_words.start()
    last_words.join(HAND_BACK_SECONDS)
    until = time.monotonic() + LAST_OBJECTS_SECONDS
    queues = (process.rendered, process.rendered_first)
    if not all(queue.wait_idle(until - time.monotonic()) for queue in queues):
        logger.warning("storing did not end in time: `./tts orphans` finds objects that are left")


def _hand_all_back(process: WorkerProcess) -> None:
    with process.claim_lock, process.exports_lock:  # what is being won now is ours to hand back
        claims = process.held.of(*Kind)
    for claim in claims:
        claim.stop()
    _try(partial(process.site.hand_back, claims))  # so that other workers can start at once
    _try(process.site.care)
    process.status.state = WorkerStatus.State.STOPPED
    _try(process.status.write)
    logger.info("worker stopped: handed_back=%d", len(claims))
    connection.close()


def _try(step: Callable[[], object]) -> None:
    """Do one of the last steps; what fails here is put right by the sweep."""
    try:
        step()
    except Exception as error:  # noqa: BLE001
        logger.warning("not done, as the worker is stopping: %s", error)


RESTART_SECONDS = 2.0


class Consumer(threading.Thread):
    """Consume queues with Celery's thread pool, beginning anew should Celery ever give up.

    The main thread stays free: signals and the drain are ours, since Celery's thread pool can
    neither stop a running task nor bound a shutdown. Remote control, gossip and mingle stay on:
    without them a busy consumer never came back after its Redis was restarted.
    """

    def __init__(self, *, name: str, queues: Sequence[str], concurrency: int) -> None:
        super().__init__(name="consumer", daemon=True)
        self._node, self._queues, self._concurrency = name, list(queues), concurrency
        self._stopper = threading.Event()

    def run(self) -> None:
        """Consume until `stop`."""
        while not self._stopper.is_set():
            try:
                self._consume()
            except (Exception, SystemExit):
                logger.exception("the consumer ended and starts again; work continues meanwhile")
            self._stopper.wait(RESTART_SECONDS)

    def stop(self) -> None:
        """Ask Celery to take no further message; running tasks end by themselves."""
        self._stopper.set()
        celery_state.should_stop = 0  # type: ignore[assignment]  # an exit status; typed as None

    def _consume(self) -> None:
        # The command has run Django's checks; Celery's are all of them, which load every page.
        os.environ["CELERY_SKIP_CHECKS"] = "yes"
        worker = current_app.Worker(
            hostname=f"{self._node}@ttsweb",
            pool="threads",
            concurrency=self._concurrency,
            queues=self._queues,
            without_gossip=False,
            without_mingle=False,
            without_heartbeat=False,
            redirect_stdouts=False,
            quiet=True,
            loglevel="INFO",
        )
        worker.start()


logger = logging.getLogger(__name__)

FOREVER = float("inf")
SIGNAL_SECONDS = 0.2
# Of one step of the pump or the heartbeat. A site that is slow may take 25 s for each of ten calls.
STUCK_SECONDS, STUCK_LEASES = 300.0, 4
State = WorkerStatus.State


def run_worker(
    process: WorkerProcess,
    *,
    queues: Sequence[str],
    concurrency: int,
    announce: Callable[[str], None],
) -> int:
    """Work until SIGTERM or SIGINT; call in the main thread, then end the process.

    Returns:
        The exit status: 0 after a stop that was asked for, 1 when the engine could not be loaded.
    """
    stop, end_now, finished = threading.Event(), threading.Event(), threading.Event()
    stopping = process.stopping

    def handle(number: int, frame: Any) -> None:
        (end_now if stop.is_set() else stop).set()  # a second signal cuts the end short
        process.look_for_work()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)

    def loop(name: str, step: Callable[[], object], seconds: float, **how: Any) -> LoopThread:
        thread = LoopThread(name, step, seconds=seconds, **{"stop": finished} | how)
        thread.start()
        return thread

    beat_seconds = process.site.lease_seconds / BEATS_PER_LEASE
    heart = loop("heartbeat", Heartbeat(process).beat, beat_seconds)
    loop("status", partial(_report_until_ready, process), STATUS_SECONDS)
    if not _prepare(process, stop, announce):
        return _stop_early(process, stop)
    worker_process.set_current_process(process)
    pump = Pump(process, heart)
    feed = loop("pump", pump.step, settings.PUMP_SECONDS, stop=stopping, wake=process.wake)
    loop("sweep", partial(_sweep, process), settings.SWEEP_SECONDS / 2, stop=stopping)
    if process.has_cpu_role:
        fill = partial(fill_missing, stopping)
        loop("live", fill, CARE_SECONDS, stop=stopping, wake=process.fill_due)
    # On its own: a claim or a full disk must not keep it waiting, nor a drain.
    loop("stop", UnwantedStop(process).step, HEARD_STOP_SECONDS)
    consumer = None
    if process.site.has_messages:
        consumer = Consumer(name=process.name, queues=queues, concurrency=concurrency)
        consumer.start()
    most = max(STUCK_SECONDS, STUCK_LEASES * process.site.lease_seconds)
    watch = ThreadWatch([heart, feed], looks=round(most / SIGNAL_SECONDS))
    announce(f"worker {process.name} ready: role={process.role} queues={','.join(queues)}")
    # A signal that the kernel hands to another thread does not wake this one, and only this one
    # runs handlers: without a look now and then a busy worker could miss its SIGTERM for ever.
    while not stop.wait(SIGNAL_SECONDS):
        if process.site.refusal:  # what it holds is freed when the leases run out
            announce(f"worker {process.name} ends: {process.site.refusal}")
            return 1
        watch.look()
    announce(f"worker {process.name} is stopping")
    if consumer is not None:
        consumer.stop()
    drain(process, end_now=end_now)
    finished.set()
    return 0


def _prepare(
    process: WorkerProcess, stop: threading.Event, announce: Callable[[str], None]
) -> bool:
    """Free what an earlier process of this name held and, in a thread, load the engine.

    Returns False when the engine cannot be loaded or a stop was asked for meanwhile.
    """
    failure: list[str] = []

    def prepare() -> None:
        try:
            retry_while_away(process.site.begin, seconds=FOREVER)
            if process.has_engine_role:
                process.status.state = State.WARMING
                process.speech.start()
                engine = process.host.start()
                process.status.describe_engine(engine)
                reopen = partial(process.site.reopen_stale, engine.codec_fingerprint)
                retry_while_away(reopen, seconds=FOREVER)
                retry_while_away(lambda: note_last_losses(process), seconds=FOREVER)
            process.status.state = State.READY
            retry_while_away(process.status.write, seconds=FOREVER)
        except Exception as error:  # whatever it is: the status row and the log must say it
            logger.exception("the worker cannot start")
            failure.append(str(error))
        finally:
            connection.close()

    thread = threading.Thread(target=prepare, name="prepare", daemon=True)
    thread.start()
    while thread.is_alive() and not stop.is_set() and not process.site.refusal:
        thread.join(0.1)
    if process.site.refusal:
        failure.append(process.site.refusal)
    if failure:
        process.status.trouble("start", failure[0])
        process.status.state = State.FAILED
        announce(f"worker {process.name} cannot start: {failure[0]}")
    return not failure and not stop.is_set()


def _stop_early(process: WorkerProcess, stop: threading.Event) -> int:
    if stop.is_set():
        process.status.state = State.STOPPED
    try:
        process.status.write()
    except Exception as error:  # noqa: BLE001
        logger.warning("cannot write the last status: %s", error)
    return 0 if stop.is_set() else 1


def _report_until_ready(process: WorkerProcess) -> None:
    """Keep the status row fresh while there is no pump to do it."""
    if process.status.state not in WorkerStatus.SERVING:
        process.status.write()


def _sweep(process: WorkerProcess) -> None:
    """Do a round of the sweep if it is due, then open the voices of other codecs again."""
    process.site.sweep()
    if codec := process.host.codec_fingerprint:
        process.site.reopen_stale(codec)


def run(command: BaseCommand, options: dict[str, Any]) -> None:
    """Work until SIGTERM or SIGINT, then end the process whatever its threads do."""
    role = options["role"] or (ROLE if options["server"] else "all")
    queues = _queues(options["queues"], role)
    given = options["concurrency"]
    concurrency = WORKER_THREADS if given is None else given
    if concurrency < 1:
        raise CommandError("--concurrency must be at least 1")

    def announce(line: str) -> None:
        command.stdout.write(line)
        command.stdout.flush()

    lock, site = _take_name(options, role, announce)
    start_telemetry(f"ttsweb-{role}-worker")
    process = WorkerProcess(name=lock.name, role=role, site=site, run=lock.run.own)
    status = run_worker(process, queues=queues, concurrency=concurrency, announce=announce)
    stop_telemetry()
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)  # threads that hang, in a broker or an engine, must not hold it up


def _take_name(
    options: dict[str, Any], role: str, announce: Callable[[str], None]
) -> tuple[NameLock, RemoteSite | None]:
    """Return a name that no other living worker has, here or at the site, and the site of --server.

    Raises:
        CommandError: the options do not go together, the site does not let this worker in, or
            another worker has the name that it was given.
    """
    name, is_fixed = options["name"] or default_name(role), bool(options["name"])
    try:
        for lock in lock_names(settings.DATA_DIR / FOLDER, name, is_fixed=is_fixed):
            site = _remote_site(options, role, lock) if options["server"] else None
            find = (
                partial(find_namesake, lock.name, lock.run) if site is None else site.find_namesake
            )
            sentence = (
                f"a worker named {lock.name} reported a moment ago: waiting up to "
                f"{SILENT_SECONDS:.0f} s to see whether it still runs"
            )
            if is_name_free(
                partial(retry_while_away, find, seconds=FOREVER), partial(announce, sentence)
            ):
                lock.note()
                return lock, site
            lock.release()
            if is_fixed:
                raise NameTakenError(
                    f"a worker named {name!r} is already running, on another host or with another "
                    "data folder; stop it, or give this one another name"
                )
    except (
        CardError, NameTakenError, ProgrammingError, SiteFailedError, SiteRefusedError
    ) as error:  # fmt: skip
        raise CommandError(str(error)) from error
    raise AssertionError  # some name is free


def _remote_site(options: dict[str, Any], role: str, lock: NameLock) -> RemoteSite:
    """Return the site of --server; it is not asked yet."""
    key = key_for(options, role)
    is_screened = read_card(settings.CHECKPOINT).quality_screen
    connection = Connection(options["server"], key, name=lock.name)
    return RemoteSite(connection, name=lock.name, is_screened=is_screened, run=lock.run)


def _queues(given: str, role: str) -> list[str]:
    queues = [name.strip() for name in given.split(",") if name.strip()] or list(ROLES[role])
    unknown = sorted(set(queues) - set(ROLES[role]))
    if unknown:
        served = ", ".join(ROLES[role])
        raise CommandError(
            f"the role {role} does not serve {', '.join(unknown)}; its queues are {served}"
        )
    return queues


def check_alive(command: BaseCommand, options: dict[str, Any]) -> None:
    """Print the worker's state.

    Raises:
        CommandError: no such worker was seen within the time of a heartbeat, or it failed.
    """
    since = leases.database_now() - dt.timedelta(seconds=HEARTBEAT_SECONDS)
    prefix = default_name(options["role"])
    workers = WorkerStatus.objects.filter(name__startswith=prefix, role=options["role"])
    worker = workers.filter(last_seen_at__gte=since).order_by("-last_seen_at").first()
    if worker is None:
        raise CommandError(
            f"No worker with the role {options['role']} and a name that begins with "
            f"{prefix} has reported for {HEARTBEAT_SECONDS} s."
        )
    if worker.state == WorkerStatus.State.FAILED:
        raise CommandError(f"{worker.name} failed. {worker.detail}")
    command.stdout.write(f"{worker.name} is {worker.state}")
