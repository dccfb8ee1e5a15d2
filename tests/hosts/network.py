"""Hosts on one machine: network namespaces on a bridge, each with its own address and folder.

The bridge is in a namespace as well, so that nothing of the machine's own network is touched.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg

from lab.servers import find_postgres
from tests.workers.pairs import wait_for

HUB = "hub"
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_C = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Network:
    """Hosts by their names; `mark` begins the names of their namespaces."""

    mark: str
    names: Sequence[str]

    def address(self, name: str) -> str:
        return f"10.213.77.{10 + self.names.index(name)}"

    @contextmanager
    def on(self, name: str) -> Iterator[None]:
        """Be on a host: sockets and processes that this thread makes in the block are of it."""
        before = os.open(f"/proc/self/task/{_C.gettid()}/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{self.mark}{name}", os.O_RDONLY)
        try:
            _enter(there)
            try:
                yield
            finally:
                _enter(before)
        finally:
            os.close(there)
            os.close(before)

    def cut_off(self, name: str) -> None:
        """Take a host off the network; it and the others learn nothing of it."""
        _ip("-n", self.mark + HUB, "link", "set", f"port-{self.names.index(name)}", "down")

    def join(self, name: str) -> None:
        _ip("-n", self.mark + HUB, "link", "set", f"port-{self.names.index(name)}", "up")


@contextmanager
def network(names: Sequence[str]) -> Iterator[Network]:
    """Make hosts and a bridge between them; they are gone after the block, whatever happens."""
    _remove_leftovers()
    made = Network(f"tts{os.getpid()}-", names)
    hub = made.mark + HUB
    with ExitStack() as stack:
        for name in (HUB, *names):
            _ip("netns", "add", made.mark + name)
            stack.callback(_ip, "netns", "del", made.mark + name)
            _ip("-n", made.mark + name, "link", "set", "lo", "up")
        _ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", hub, "link", "set", "bridge", "up")
        for number, name in enumerate(names):
            port, host = f"port-{number}", made.mark + name
            ends = ("peer", "name", "eth0", "netns", host)
            _ip("-n", hub, "link", "add", port, "type", "veth", *ends)
            _ip("-n", hub, "link", "set", port, "master", "bridge", "up")
            _ip("-n", host, "address", "add", f"{made.address(name)}/24", "dev", "eth0")
            _ip("-n", host, "link", "set", "eth0", "up")
        yield made


@dataclass
class Postgres:
    """A database server of this test alone, on one of the hosts."""

    network: Network
    host: str
    folder: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{self.network.address(self.host)}:5432/postgres"

    def start(self) -> None:
        address = self.network.address(self.host)
        settings = (
            f"listen_addresses={address}", "unix_socket_directories=", "fsync=off",
            "max_connections=200", "shared_buffers=32MB",
        )  # fmt: skip
        options = [word for setting in settings for word in ("-c", setting)]
        with self.network.on(self.host):
            self.process = subprocess.Popen(
                [_program("postgres"), "-D", self.folder, *options],
                user="postgres",
                group="postgres",
                extra_groups=[],
                cwd="/",
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        wait_for(self._answers, what="PostgreSQL answers")

    def stop(self) -> None:
        """End it at once, as a failing host does; what was committed is there at the next start."""
        if self.process is not None:
            self.process.send_signal(3)  # SIGQUIT: an immediate shutdown
            self.process.wait(60)

    def _answers(self) -> bool:
        try:
            with self.network.on(self.host), psycopg.connect(self.url, connect_timeout=5):
                return True
        except psycopg.OperationalError:
            return False


@contextmanager
def postgres_on(network: Network, host: str) -> Iterator[Postgres]:
    """Run a new PostgreSQL on a host until the block ends."""
    folder = Path(tempfile.mkdtemp(prefix="tts-hosts-"))  # not below pytest's: its user must get in
    try:
        shutil.chown(folder, "postgres", "postgres")
        command = [_program("initdb"), "-D", str(folder), "-U", "postgres", "-A", "trust", "-N"]
        subprocess.run(
            command, user="postgres", group="postgres", extra_groups=[], cwd="/", check=True,
            capture_output=True,
        )  # fmt: skip
        with (folder / "pg_hba.conf").open("a", encoding="ascii") as file:
            file.write("host all all 10.213.77.0/24 trust\n")
        server = Postgres(network, host, folder)
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_leftovers() -> None:
    """Remove the namespaces of a test process that was killed."""
    listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True)
    for found in re.finditer(r"^tts([0-9]+)-\S+", listed.stdout, re.MULTILINE):
        if not Path(f"/proc/{found[1]}").exists():
            with suppress(subprocess.CalledProcessError):  # another process does the same
                _ip("netns", "del", found[0])


def _program(name: str) -> str:
    folder = find_postgres()
    assert folder is not None
    return str(folder / name)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _enter(namespace: int) -> None:
    if _C.setns(namespace, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "cannot enter a network namespace")
