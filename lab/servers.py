"""Start a Redis and a PostgreSQL of one's own, which may be killed and started again.

A proxy stands between a client and a server, and passes nothing on while the network is cut.
"""

from __future__ import annotations

import functools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

HOST = "127.0.0.1"
POSTGRES_USER = "postgres"  # whose server it is when root starts it, which PostgreSQL refuses


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port


def find_redis() -> str | None:
    """Return the program that `TTS_TEST_REDIS_SERVER` names, or the one on the PATH."""
    return shutil.which(os.environ.get("TTS_TEST_REDIS_SERVER") or "redis-server")


def why_no_redis() -> str | None:
    why = "no redis-server program was found (TTS_TEST_REDIS_SERVER may name one)"
    return None if find_redis() else why


class RedisServer:
    """A Redis on a free port that keeps nothing on disk, and lets in who has the password."""

    def __init__(self, folder: Path, *, password: str = "") -> None:
        self.port, self._folder, self._password = free_port(), folder, password
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        user = f":{self._password}@" if self._password else ""
        return f"redis://{user}{HOST}:{self.port}/0"

    def start(self) -> None:
        """Start it empty, and return once it answers."""
        program = find_redis()
        assert program is not None, why_no_redis()
        options = ["--bind", HOST, "--port", str(self.port), "--save", ""]
        if self._password:
            options += ["--requirepass", self._password]
        self._process = subprocess.Popen(
            [program, *options, "--dir", self._folder],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        with redis.Redis.from_url(self.url, retry=Retry(ConstantBackoff(0.02), 750)) as client:
            client.ping()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def flush(self) -> None:
        with redis.Redis.from_url(self.url) as client:
            client.flushall()


@functools.cache
def find_postgres() -> Path | None:
    """Return the folder of PostgreSQL's programs: that on the PATH, or the newest of Debian's."""
    if (found := shutil.which("initdb")) is not None:
        return Path(found).parent
    folders = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = sorted(folders, key=lambda path: float(path.parts[-3]))
    return newest[-1].parent if newest else None


def why_no_postgres() -> str | None:
    if find_postgres() is None:
        return "initdb is neither on the PATH nor in /usr/lib/postgresql/*/bin; install PostgreSQL"
    if os.geteuid() == 0 and not _has_user(POSTGRES_USER):
        return f"PostgreSQL does not run as root, and there is no user {POSTGRES_USER} here"
    return None


class PostgresServer:
    """A PostgreSQL on a free port, with one database, in a folder of its own under /tmp."""

    def __init__(self) -> None:
        programs = find_postgres()
        assert programs is not None, why_no_postgres()
        self.port, self._programs = free_port(), programs
        self._user = POSTGRES_USER if os.geteuid() == 0 else None
        self._folder = Path(tempfile.mkdtemp(prefix="ttsweb-postgres-"))
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        self._run("initdb", "-A", "trust", "-U", POSTGRES_USER, "-E", "UTF8", "--locale=C")

    @property
    def url(self) -> str:
        return f"postgresql://{POSTGRES_USER}@{HOST}:{self.port}/{POSTGRES_USER}"

    def start(self) -> None:
        """Start it, and return once it answers."""
        options = f"-p {self.port} -k {self._folder} -h {HOST} -c max_connections=300"
        self._run("pg_ctl", "-w", "-l", str(self._folder / "log"), "-o", options, "start")

    def stop(self) -> None:
        """Stop it as a power cut of its machine would: it recovers when it is started again."""
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def remove(self) -> None:
        """Stop it, if it runs, and remove its folder."""
        with suppress(subprocess.CalledProcessError):
            self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._programs / program, "-D", self._folder / "data", *arguments],
            user=self._user,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C is not for it
            check=True,
        )


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


CHUNK_BYTES = 1 << 16


class Proxy:
    """Pass TCP connections on to a port; `cut` holds all bytes back, as a lost route does.

    Neither end is told: bytes that were sent meanwhile arrive when the network is `mended`.

    Attributes:
        delay_seconds: what each piece waits before it is passed on.
    """

    def __init__(self, port: int) -> None:
        self._target, self.delay_seconds = port, 0.0
        self._passes = threading.Event()
        self._passes.set()
        self._listening = socket.create_server((HOST, 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._passes.clear()

    def mend(self) -> None:
        self._passes.set()

    def close(self) -> None:
        self.mend()
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                near, _ = self._listening.accept()
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        self._passes.wait()
        try:
            far = socket.create_connection((HOST, self._target))
        except OSError:
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while chunk := source.recv(CHUNK_BYTES):
                time.sleep(self.delay_seconds)
                self._passes.wait()
                target.sendall(chunk)
        self._passes.wait()
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
