"""Tell a worker process by a name of its own, and say in one row how it is; pages read that row."""

from __future__ import annotations

import fcntl
import itertools
import os
import platform
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from resource import getpagesize
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from django.conf import settings

from synth.models import WorkerStatus
from ttsweb import leases

if TYPE_CHECKING:
    from synth.engine import Engine

State = WorkerStatus.State
ENDING = (State.DRAINING, State.STOPPED)


class Publish(Protocol):
    """Write columns of a worker's row."""

    def __call__(self, columns: Mapping[str, Any], *, is_start: bool) -> None: ...


class StatusReport:
    """Keep what this worker says of itself; `write` publishes it. Safe from every thread."""

    def __init__(
        self, *, name: str, role: str, checkpoint: str, publish: Publish, run: str = ""
    ) -> None:
        self.name, self._publish = name, publish
        self._state = State.STARTING
        self._columns: dict[str, Any] = {"role": role, "checkpoint": checkpoint[-200:], "run": run}
        self._trouble: dict[str, str] = {}
        self._is_started = False
        self._lock, self._writing = threading.Lock(), threading.Lock()

    def describe_engine(self, engine: Engine) -> None:
        """Take over what the engine says of itself."""
        self._columns |= {
            "device": engine.device[:100],
            "model_fingerprint": engine.model_fingerprint,
            "codec_fingerprint": engine.codec_fingerprint,
            "engine_class": asdict(engine.engine_class),
            "resampler": engine.resampler,
        }

    @property
    def state(self) -> WorkerStatus.State:
        return self._state

    @state.setter
    def state(self, state: WorkerStatus.State) -> None:
        with self._lock:
            if self._state not in ENDING or state in ENDING:  # a load may end while a drain goes on
                self._state = state

    def trouble(self, topic: str, sentence: str = "") -> bool:
        """Set, or with an empty sentence clear, what is wrong in one respect; True if it is new."""
        with self._lock:
            changed = self._trouble.get(topic, "") != sentence
            self._trouble[topic] = sentence
        return changed

    @property
    def detail(self) -> str:
        with self._lock:
            return " ".join(sentence for sentence in self._trouble.values() if sentence)

    def write(self, *, figures: dict[str, Any] | None = None) -> None:
        """Publish the row, seen now; `figures` are counts that pages show.

        Raises:
            SITE_AWAY: the site does not answer at the moment.
        """
        columns = self._columns | {"state": self.state, "detail": self.detail}
        if figures is not None:
            columns["figures"] = figures
        with self._writing:  # two threads that make the row at once would collide
            self._publish(columns, is_start=not self._is_started)
            self._is_started = True


def write_row(name: str, columns: Mapping[str, Any], *, is_start: bool) -> None:
    """Write what a worker says of itself, seen now.

    Raises:
        NameTakenError: another process has begun under the name since this one did.
    """
    now = leases.database_now()
    seen = {**columns, "last_seen_at": now, **({"started_at": now} if is_start else {})}
    rows = WorkerStatus.objects.filter(pk=name)
    if not is_start:
        rows = rows.filter(run=columns.get("run", ""))
    if rows.update(**seen):
        return
    if not is_start and WorkerStatus.objects.filter(pk=name).exists():
        raise NameTakenError(
            f"another worker named {name!r} has begun since, on another host or with another data "
            "folder; give one of them another name, by --name or TTS_WORKER_NAME"
        )
    WorkerStatus.objects.create(name=name, **({"started_at": now} | seen))


SILENT_SECONDS = 15.0  # of a process that says something every two


class Run(NamedTuple):
    """Tell a process from others of its name: its own run, and one that is known to have ended."""

    own: str = ""
    previous: str = ""


def find_namesake(name: str, run: Run) -> str:
    """Return when another process that seems to live last reported under a name; "" for none."""
    row = WorkerStatus.objects.filter(pk=name).exclude(state=State.STOPPED).first()
    if row is None or row.run in ("", *run):
        return ""
    age = leases.database_now() - row.last_seen_at
    return "" if age.total_seconds() > SILENT_SECONDS else row.last_seen_at.isoformat()


def is_name_free(find: Callable[[], str], announce: Callable[[], None]) -> bool:
    """Return whether no other living process has a name; wait until that shows.

    One that was killed reports no more: what it said last is not the sign of a living one.

    Args:
        find: as `find_namesake`.
        announce: called before a wait.
    """
    seen: set[str] = set()
    while moment := find():
        if not seen:
            announce()
        seen.add(moment)
        if len(seen) > 2:  # a report may have been on its way as its process ended
            return False
        time.sleep(LOOK_SECONDS)
    return True


LOOK_SECONDS = 1.0


WINDOW_SECONDS = 30.0


class FrameRate:
    """Turn a growing count of frames into frames per second over the last half minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, frames: int, *, now: float | None = None) -> float:
        """Take the count of this moment; return the rate, 0.0 while there is only one count."""
        now = time.monotonic() if now is None else now
        if self._seen and frames < self._seen[-1][1]:  # another engine counts from 0 again
            self._seen.clear()
        self._seen.append((now, frames))
        while len(self._seen) > 2 and self._seen[1][0] <= now - WINDOW_SECONDS:
            self._seen.popleft()
        begun, before = self._seen[0]
        return (frames - before) / (now - begun) if now > begun else 0.0


def resident_bytes() -> int | None:
    """Return the memory that this process holds, or None where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * getpagesize()
    except (OSError, IndexError, ValueError):
        return None


FOLDER = "workers"  # in the data folder
TRIES, TRY_SECONDS = 40, 0.05  # whoever frees what an ended process held has its lock meanwhile
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,100}")


class NameTakenError(Exception):
    """Another living worker has the name, or it cannot be one."""


class NameLock:
    """Hold a worker's name by a locked file; the lock ends with the process, however it ends."""

    def __init__(self, name: str, descriptor: int) -> None:
        self.name, self._descriptor = name, descriptor
        previous = os.pread(descriptor, 200, 0).decode(errors="replace")
        self.run = Run(uuid.uuid4().hex, previous[:32])

    def note(self) -> None:
        """Write which run of the worker holds the name, for `held_if_ended` and the next run."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, self.run.own.encode(), 0)

    def release(self) -> None:
        os.close(self._descriptor)


def default_name(role: str) -> str:
    """Return the name of this host's first worker of a role; `TTS_WORKER_NAME` names the host."""
    host = settings.WORKER_NAME or platform.node().split(".")[0] or "worker"
    return f"{host}-{role}"


def lock_name(folder: Path, name: str, *, is_fixed: bool) -> NameLock:
    """Lock `name`, or, if it may change, the first free one of name, name-2, name-3 and so on."""
    return next(lock_names(folder, name, is_fixed=is_fixed))


def lock_names(folder: Path, name: str, *, is_fixed: bool) -> Iterator[NameLock]:
    """Yield the free ones of `name` and, if it may change, of name-2, name-3 and so on, locked.

    A name that stays the same over restarts lets a worker free what it held before a crash.

    Raises:
        NameTakenError: a fixed name is taken, or has other characters than A-Z a-z 0-9 . _ @ -
    """
    if not _NAME.fullmatch(name):
        raise NameTakenError(
            f"{name!r} is not a valid name of a worker; use letters, digits and . _ @ - (at "
            "most 100 characters)"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        candidate = name if number == 1 else f"{name}-{number}"
        descriptor = os.open(folder / f"{candidate}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        if _is_locked(descriptor, tries=TRIES if is_fixed else 1):
            yield NameLock(candidate, descriptor)
        else:
            os.close(descriptor)
        if is_fixed:
            raise NameTakenError(
                f"a worker named {name!r} is already running; stop it, or give this one "
                "another name"
            )


@contextmanager
def held_if_ended(folder: Path, name: str, run: str) -> Iterator[bool]:
    """Give whether the process that noted this run under its name ran here and is gone.

    If so, no other process gets the name before the `with` block ends. False may also mean that it
    ran on another host.
    """
    try:
        descriptor = os.open(folder / f"{name}.lock", os.O_RDONLY)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        is_free = True
    except BlockingIOError:
        is_free = False
    try:
        noted = os.read(descriptor, 200).decode(errors="replace")
        yield is_free and bool(run) and noted == run
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int, *, tries: int) -> bool:
    """Lock a file; False where another process has it."""
    for attempt in range(tries):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if attempt < tries - 1:
                time.sleep(TRY_SECONDS)
    return False
