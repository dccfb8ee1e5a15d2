"""Run one worker process from start to stop: engine first, then the pump, then messages."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.conf import settings
from django.db import connection

from synth.models import WorkerStatus
from workers.process import running
from workers.process.claiming import note_last_losses
from workers.process.consumer import Consumer
from workers.process.heartbeat import BEATS_PER_LEASE, Heartbeat
from workers.process.loop_thread import LoopThread
from workers.process.outages import outlast
from workers.process.pump import STATUS_SECONDS, STOP_SECONDS, Pump, stop_unwanted
from workers.process.shutdown import drain
from workers.process.worker_process import WorkerProcess
from workers.upkeep import sweep

logger = logging.getLogger(__name__)

FOREVER = float("inf")
SIGNAL_SECONDS = 0.2
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
    stop, hurry, finished = threading.Event(), threading.Event(), threading.Event()
    _install_signals(process, stop, hurry)
    beat_seconds = settings.LEASE_SECONDS / BEATS_PER_LEASE
    heart = LoopThread("heartbeat", Heartbeat(process).beat, seconds=beat_seconds, stop=finished)
    status = LoopThread("status", _tell(process), seconds=STATUS_SECONDS, stop=finished)
    heart.start()
    status.start()
    if not _prepare(process, stop, announce):
        return _stop_early(process, stop)
    running.set_current(process)
    pump = LoopThread(
        "pump",
        Pump(process, heart).step,
        seconds=settings.PUMP_SECONDS,
        stop=process.stopping,
        wake=process.wake,
    )
    sweeper = LoopThread(
        "sweep", _sweep(process), seconds=settings.SWEEP_SECONDS / 2, stop=process.stopping
    )
    # On its own: a claim or a full disk must not keep it waiting, nor a drain.
    stopper = LoopThread(
        "stop", partial(stop_unwanted, process), seconds=STOP_SECONDS, stop=finished
    )
    consumer = Consumer(name=process.name, queues=queues, concurrency=concurrency)
    pump.start()
    sweeper.start()
    stopper.start()
    consumer.start()
    announce(f"worker {process.name} ready: role={process.role} queues={','.join(queues)}")
    while not stop.wait(SIGNAL_SECONDS):
        # A signal that the kernel hands to another thread does not wake this one, and only this one
        # runs handlers: without a look now and then a busy worker could miss its SIGTERM for ever.
        pass
    announce(f"worker {process.name} is stopping")
    consumer.stop()
    drain(process, hurry=hurry)
    finished.set()
    return 0


def _install_signals(process: WorkerProcess, stop: threading.Event, hurry: threading.Event) -> None:
    """Make the first signal stop the worker and a second one hurry it."""

    def handle(number: int, frame: Any) -> None:
        (hurry if stop.is_set() else stop).set()
        process.look_around()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)


def _prepare(
    process: WorkerProcess, stop: threading.Event, announce: Callable[[str], None]
) -> bool:
    """Free what an earlier process of this name held and, in a thread, load the engine.

    Returns False when the engine cannot be loaded or a stop was asked for meanwhile.
    """
    failure: list[str] = []

    def prepare() -> None:
        try:
            outlast(lambda: sweep.free_own(process.name), seconds=FOREVER)
            outlast(sweep.start_clock, seconds=FOREVER)
            if process.has_engine_role:
                _start_engine(process)
                outlast(lambda: note_last_losses(process), seconds=FOREVER)
            process.status.state = State.READY
            outlast(process.status.write, seconds=FOREVER)
        except Exception as error:  # whatever it is: the status row and the log must say it
            logger.exception("the worker cannot start")
            failure.append(str(error))
        finally:
            connection.close()

    thread = threading.Thread(target=prepare, name="prepare", daemon=True)
    thread.start()
    while thread.is_alive() and not stop.is_set():
        thread.join(0.1)
    if failure:
        process.status.trouble("start", failure[0])
        process.status.state = State.FAILED
        announce(f"worker {process.name} cannot start: {failure[0]}")
    return not failure and not stop.is_set()


def _start_engine(process: WorkerProcess) -> None:
    process.status.state = State.WARMING
    process.speech.start()
    engine = process.host.start()
    process.status.describe_engine(engine)
    outlast(lambda: sweep.reopen_stale(process.name, engine.codec_fingerprint), seconds=FOREVER)


def _stop_early(process: WorkerProcess, stop: threading.Event) -> int:
    """Say good-bye before any work was taken."""
    if stop.is_set():
        process.status.state = State.STOPPED
    try:
        process.status.write()
    except Exception as error:
        logger.warning("cannot write the last status: %s", error)
    return 0 if stop.is_set() else 1


def _tell(process: WorkerProcess) -> Callable[[], None]:
    """Return a step that keeps the status row fresh while there is no pump to do it."""

    def step() -> None:
        if process.status.state is not State.READY:
            process.status.write()

    return step


def _sweep(process: WorkerProcess) -> Callable[[], None]:
    """Return the sweep's step: a round if it is due, then the voices of other codecs."""

    def step() -> None:
        sweep.sweep_if_due()
        if process.host.is_ready:
            sweep.reopen_stale(process.name, process.host.engine.codec_fingerprint)

    return step
