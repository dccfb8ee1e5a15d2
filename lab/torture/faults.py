"""The faults, one by one: each is done to a running installation and put right again after it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lab.torture.installation import LEASE_SECONDS, WORKERS, Installation
from lab.torture.load import PARTIAL, Load, poisoned
from lab.torture.plants import CLOCK, THRICE
from lab.torture.stand_in import HANG, NO_MEMORY

KILL_SECONDS = 4.0
LONGEST_AWAY_SECONDS = 30.0  # of a broker, a database or the network
HUNG_LEASES = 4  # so long a worker waits for an engine that stands still before it ends itself
POISON_SECONDS = 90.0
SLOW_SECONDS = 0.5  # that every piece of a request and of its answer takes
CLOCK_JUMP_SECONDS = 5.0 * LEASE_SECONDS
CLOCK_OFF_SECONDS = 3600.0  # of one worker beside others, where the database has the clock
LOOK_SECONDS = 0.1


@dataclass
class Scene:
    """What a fault is done to, and the load beside it."""

    made: Installation
    load: Load
    sleep: Callable[[float], None] = time.sleep
    has_ended: Callable[[object], bool] = lambda pk: True

    def flag(self, name: str, text: str = "") -> Path:
        path = self.made.folder / name
        path.write_text(text)
        return path


@dataclass(frozen=True)
class Fault:
    """A fault by its name in tables; `needs` are parts of an installation, and `root`."""

    name: str
    run: Callable[[Scene, float], None]
    needs: frozenset[str] = frozenset()


def _nothing(scene: Scene, seconds: float) -> None:
    scene.sleep(seconds)


def _kills(scene: Scene, seconds: float) -> None:
    """Kill, every few seconds, a worker, the web server or all there is."""
    until, number = time.monotonic() + seconds, 0
    workers = scene.made.workers
    while time.monotonic() < until:
        turn = number % 4
        if turn == 1:
            scene.made.kill_web()
        elif turn == 3:
            scene.made.kill_all()
        else:
            workers[WORKERS[number // 2 % 2]].send(signal.SIGKILL)
        number += 1
        scene.sleep(KILL_SECONDS)


def _suspended(scene: Scene, seconds: float) -> None:
    """Stop a worker for longer than its leases, then let it go on with what it held."""
    worker = scene.made.workers[WORKERS[0]]
    worker.send(signal.SIGSTOP)
    try:
        scene.sleep(max(seconds, 3.0 * LEASE_SECONDS))
    finally:
        worker.send(signal.SIGCONT)


def _lost_messages(scene: Scene, seconds: float) -> None:
    """Lose all messages, each second."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if scene.made.redis is not None:
            scene.made.redis.flush()
        else:
            for path in (scene.made.data / "queue" / "messages").glob("*"):
                path.unlink(missing_ok=True)
        scene.sleep(1.0)


def _broker_killed(scene: Scene, seconds: float) -> None:
    """Kill Redis each few seconds; it comes back at once, and empty."""
    redis = scene.made.redis
    assert redis is not None
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        redis.kill()
        redis.start()
        scene.sleep(KILL_SECONDS)


def _be_away(
    scene: Scene, seconds: float, stop: Callable[[], None], start: Callable[[], None]
) -> None:
    """Stop a server for so long at most, and start it again whatever happens."""
    stop()
    try:
        scene.sleep(min(seconds, LONGEST_AWAY_SECONDS))
    finally:
        start()


def _broker_away(scene: Scene, seconds: float) -> None:
    redis = scene.made.redis
    assert redis is not None
    _be_away(scene, seconds, redis.kill, redis.start)


def _database_stopped(scene: Scene, seconds: float) -> None:
    postgres = scene.made.postgres
    assert postgres is not None
    _be_away(scene, seconds, postgres.stop, postgres.start)


def _disk_full(scene: Scene, seconds: float) -> None:
    """Leave less room than workers ask for, and after half of the time none at all."""
    with suppress(OSError):
        _fill(scene.made.data / "filler-1", leave=100_000_000)
    scene.sleep(seconds / 2)
    _fill(scene.made.data / "filler-2", leave=0)
    try:
        scene.sleep(seconds / 2)
    finally:
        for path in scene.made.data.glob("filler-*"):
            path.unlink()


def _fill(path: Path, *, leave: int) -> None:
    room = os.statvfs(path.parent)
    with path.open("wb") as file:
        left = room.f_bavail * room.f_frsize - leave
        while left > 0:
            part = min(left, 1 << 24)
            try:
                os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), part)
            except OSError:  # somebody else took the last of it
                return
            left -= part


def _with_flag(name: str, text: str, scene: Scene, seconds: float) -> None:
    flag = scene.flag(name, text)
    try:
        scene.sleep(seconds)
    finally:
        flag.unlink(missing_ok=True)


def _clock_jump(scene: Scene, seconds: float) -> None:
    """Move clocks forward, and back at the end.

    Leases go by the database's clock: with PostgreSQL one worker's may be an hour off. With SQLite
    it is the host's, which moves for all processes.
    """
    if scene.made.postgres is not None:
        _with_flag(f"{CLOCK}-{WORKERS[0]}", str(CLOCK_OFF_SECONDS), scene, seconds)
    else:
        _with_flag(CLOCK, str(CLOCK_JUMP_SECONDS), scene, seconds)


def _poison(scene: Scene, seconds: float) -> None:
    """Submit a job with a segment that kills every worker that begins it."""
    until = time.monotonic() + max(seconds, POISON_SECONDS)
    with scene.load.client() as client:
        text = poisoned(scene.load.text(3))
        job = scene.load.post_job(client, (PARTIAL,), text=text, priority="bulk")
    while job is not None and time.monotonic() < until and not scene.has_ended(job.pk):
        scene.sleep(LOOK_SECONDS)


def _hung(scene: Scene, seconds: float) -> None:
    """Have the engine of one worker stand still until that worker gives up."""
    flag = scene.flag(HANG)
    try:
        scene.sleep(max(seconds, (HUNG_LEASES + 1) * LEASE_SECONDS))
    finally:
        flag.unlink(missing_ok=True)


def _partition(scene: Scene, seconds: float) -> None:
    """Cut one worker off from database and broker, for longer than its leases."""
    for proxy in scene.made.proxies:
        proxy.cut()
    try:
        scene.sleep(min(max(seconds, 3.0 * LEASE_SECONDS), LONGEST_AWAY_SECONDS))
    finally:
        for proxy in scene.made.proxies:
            proxy.mend()


def _storage_away(scene: Scene, seconds: float) -> None:
    """Have the S3 server take connections and answer nobody."""
    s3 = scene.made.s3
    assert s3 is not None
    _be_away(scene, seconds, s3.stop, s3.go_on)


def _storage_slow(scene: Scene, seconds: float) -> None:
    storage = scene.made.storage
    assert storage is not None
    storage.delay_seconds = SLOW_SECONDS
    try:
        scene.sleep(seconds)
    finally:
        storage.delay_seconds = 0.0


_REDIS, _POSTGRES, _NETWORK = frozenset({"redis"}), frozenset({"postgres"}), frozenset({"network"})
FAULTS = (
    Fault("none", _nothing),
    Fault("kill -9", _kills),
    Fault("suspended", _suspended),
    Fault("messages lost", _lost_messages),
    Fault("messages thrice", partial(_with_flag, THRICE, "")),
    Fault("broker killed", _broker_killed, _REDIS),
    Fault("broker away", _broker_away, _REDIS),
    Fault("database stopped", _database_stopped, _POSTGRES),
    Fault("partition", _partition, _NETWORK),
    Fault("clock jump", _clock_jump),
    Fault("engine hangs", _hung),
    Fault("out of memory", partial(_with_flag, NO_MEMORY, "")),
    Fault("poison", _poison),
    Fault("disk full", _disk_full, frozenset({"disk"})),
    Fault("storage away", _storage_away, frozenset({"s3"})),
    Fault("storage slow", _storage_slow, frozenset({"s3"})),
)
NAMES = tuple(fault.name for fault in FAULTS)
WHY_NOT = {
    "redis": "messages are files here; give --redis",
    "postgres": "the database is a file here; give --postgres",
    "network": "no server is reached over a network; give --redis, --postgres or --s3",
    "s3": "the storage is a folder here; give --s3",
    "disk": "to fill a disk of its own it has to be root, which may mount one",
}
