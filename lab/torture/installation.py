"""Start an installation of its own: web, two workers, and the servers that they are told of."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

from lab.s3_server import S3Server, s3_server
from lab.servers import HOST, PostgresServer, Proxy, RedisServer, free_port
from lab.torture.plants import FOLDER, RENDER_SECONDS, WORKER

LEASE_SECONDS, SLOTS = 2, 4
RESTART_SECONDS = 0.5  # as service managers wait before they start again what ended
DISK_BYTES, DISK_BYTES_PER_MINUTE = 600_000_000, 200_000_000
WORKERS = ("w1", "w2")
BUCKET = "tortured"
CUT_OFF = "w2"  # the worker behind proxies
END_SECONDS = 10.0
_LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Wanted:
    """What an installation is to have."""

    redis: bool = False
    postgres: bool = False
    s3: bool = False
    own_disk: bool = False
    minutes: float = 1.0
    render_seconds: float = 0.1
    slots: int = SLOTS


class Process:
    """One process of ours that is started again whenever it ends, as service managers do."""

    def __init__(self, name: str, arguments: list[str], log: Path, extra: Mapping[str, str]):
        from workers.local.children import Child, open_log

        self.name = name
        self._log = open_log(log)
        self._child = Child(name, "manage", arguments, log=self._log, environment=extra)
        self._ended_at = 0.0
        self.is_wanted = True

    @property
    def pid(self) -> int:
        return self._child.pid or 0

    def keep(self) -> None:
        if not self.is_wanted or self._child.is_running:
            self._ended_at = 0.0
        elif self._ended_at == 0.0:
            self._ended_at = time.monotonic()
        elif time.monotonic() - self._ended_at >= RESTART_SECONDS:
            self._child.start()

    def start(self) -> None:
        self._child.start()

    def send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            if self._child.is_running:
                os.kill(self.pid, number)

    def end(self) -> None:
        """Kill it, with the children that it has, and wait for it."""
        self.is_wanted = False
        for pid in children_of(self.pid):
            _kill(pid)
        self.send(signal.SIGCONT)
        self.send(signal.SIGKILL)
        self._child.wait_stopped(time.monotonic() + END_SECONDS)
        self._log.close()


@dataclass
class Installation:
    """A running installation: where it is, and what can be done to it."""

    folder: Path  # of flags and notes, beside all that the product writes
    data: Path
    url: str
    web: Process
    workers: dict[str, Process]
    redis: RedisServer | None
    postgres: PostgresServer | None
    proxies: list[Proxy] = field(default_factory=list)
    has_own_disk: bool = False
    s3: S3Server | None = None
    storage: Proxy | None = None  # before the S3 server, for all processes

    @property
    def processes(self) -> list[Process]:
        return [self.web, *self.workers.values()]

    def web_pids(self) -> list[int]:
        """Return the processes that answer requests, which the site's supervisor started."""
        return children_of(self.web.pid)

    def kill_web(self) -> None:
        for pid in self.web_pids():
            _kill(pid)

    def kill_all(self) -> None:
        self.kill_web()
        for process in self.processes:
            process.send(signal.SIGKILL)


@contextmanager
def installed(wanted: Wanted) -> Iterator[Installation]:
    """Start an installation; all of it, its servers, files and mounts, is gone after the block.

    This process becomes one of it: Django is set up on the installation's database. Once a process.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ttsweb-torture-")))
        data = folder / "data"
        data.mkdir(mode=0o700)
        has_own_disk = wanted.own_disk and _mount(data, minutes=wanted.minutes)
        if has_own_disk:
            stack.callback(lambda: subprocess.run(["umount", "--lazy", str(data)], check=False))
        redis = postgres = None
        if wanted.redis:
            redis = RedisServer(folder)
            stack.callback(redis.kill)
            redis.start()
        if wanted.postgres:
            postgres = PostgresServer()
            stack.callback(postgres.remove)
            postgres.start()
        s3 = storage = None
        if wanted.s3:
            s3 = stack.enter_context(s3_server())
            s3.make_bucket(BUCKET)
            storage = Proxy(_port_of(s3.endpoint))
            stack.callback(storage.close)
        os.environ.update(_environment(data, wanted, redis, postgres))
        if s3 is not None and storage is not None:
            os.environ.update(s3.environment | {"TTS_STORAGE": _storage_url(s3, storage)})
        _set_up(data)
        made = _processes(folder, data, wanted, redis, postgres, stack)
        made.s3, made.storage, made.has_own_disk = s3, storage, has_own_disk
        stack.enter_context(_kept(made))
        yield made


def _environment(
    data: Path, wanted: Wanted, redis: RedisServer | None, postgres: PostgresServer | None
) -> dict[str, str]:
    """Change this process's environment to the installation's: none of the caller's settings."""
    for name in [name for name in os.environ if name.startswith("TTS_")]:
        del os.environ[name]
    found = {
        "DJANGO_SETTINGS_MODULE": "ttsweb.settings",
        "OMP_NUM_THREADS": "1",
        "TTS_ENV_FILE": os.devnull,
        "TTS_DATA_DIR": str(data),
        "TTS_SECRET_KEY": secrets.token_urlsafe(50),
        "TTS_LEASE_SECONDS": str(LEASE_SECONDS),
        "TTS_ENGINE_SLOTS": str(wanted.slots),
    }
    if redis is not None:
        found["TTS_REDIS_URL"] = redis.url
    if postgres is not None:
        found["TTS_DATABASE_URL"] = postgres.url
    return found


def _mount(folder: Path, *, minutes: float) -> bool:
    """Mount a disk that is in memory; False where even root may not, as in most containers."""
    size = int(DISK_BYTES + DISK_BYTES_PER_MINUTE * minutes)
    options = ["-t", "tmpfs", "-o", f"size={size},mode=700", "tortured"]
    done = subprocess.run(["mount", *options, str(folder)], capture_output=True, check=False)
    return done.returncode == 0


def _port_of(url: str) -> int:
    found = re.search(rf"{re.escape(HOST)}:(\d+)", url)
    assert found is not None, url
    return int(found[1])


def _storage_url(s3: S3Server, storage: Proxy) -> str:
    return s3.storage_url(BUCKET, endpoint=f"http://{HOST}:{storage.port}")


def _set_up(data: Path) -> None:
    import django

    django.setup()
    from ttsweb.migration import migrate_once

    migrate_once(data)


def _processes(
    folder: Path,
    data: Path,
    wanted: Wanted,
    redis: RedisServer | None,
    postgres: PostgresServer | None,
    stack: ExitStack,
) -> Installation:
    plan = {
        "DJANGO_SETTINGS_MODULE": "lab.torture.settings",
        FOLDER: str(folder),
        RENDER_SECONDS: str(wanted.render_seconds),
    }
    proxies, behind = [], {}
    for name in ("TTS_REDIS_URL", "TTS_DATABASE_URL", "TTS_STORAGE"):
        if url := os.environ.get(name):
            port = _port_of(url)
            proxies.append(proxy := Proxy(port))
            stack.callback(proxy.close)
            behind[name] = url.replace(f"{HOST}:{port}", f"{HOST}:{proxy.port}")
    port = free_port()
    serve = ["serve", "--no-worker", "--port", str(port)]
    web = Process("web", serve, folder / "web.log", plan)
    stack.callback(web.end)
    workers = {}
    for name in WORKERS:
        extra = plan | {WORKER: name} | (behind if name == CUT_OFF else {})
        arguments = ["worker", "--role", "all", "--name", name]
        workers[name] = Process(name, arguments, folder / f"{name}.log", extra)
        stack.callback(workers[name].end)
    made = Installation(folder, data, f"http://{HOST}:{port}", web, workers, redis, postgres)
    made.proxies = proxies
    for process in made.processes:
        process.start()
    return made


@contextmanager
def _kept(made: Installation) -> Iterator[None]:
    """Start what ends again, until the block does."""
    over = Event()

    def keep() -> None:
        while not over.wait(_LOOK_SECONDS):
            for process in made.processes:
                process.keep()

    thread = Thread(target=keep, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def children_of(pid: int) -> list[int]:
    """Return the processes that a process started and that run."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    rows = [line.split() for line in listed.stdout.splitlines()]
    return [int(child) for child, parent in rows if int(parent) == pid] if pid else []


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
