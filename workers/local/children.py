"""Start, watch and stop the child processes of one command, such as a worker for each device."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from django.conf import settings

from ttsweb.commands.base import BaseCommand, CommandError, UsageError
from ttsweb.commands.base import signals_interrupt as signals_interrupt
from workers.process.status import default_name
from workers.remote.options import ROLE, key_for

logger = logging.getLogger(__name__)

STOP_MARGIN_SECONDS = 5.0  # after the drain a worker hands its work back; then it is killed
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
HEALTHY_SECONDS = 60.0  # a child that ran this long starts again at once
LOG_TAIL_BYTES = 4000


class Child:
    """One child process: started on demand, started again after it died, with growing pauses."""

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Sequence[str] = (),
        *,
        descriptors: Sequence[int] = (),
        log: IO[bytes] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Describe the child; nothing is started yet.

        Args:
            module: run as `python -m` would, ended with this process.
            descriptors: open files that the child shares with this process.
            log: takes what the child writes; this process's standard error when None.
            environment: variables that the child has beside those of this process.
        """
        self.name = name
        self._module, self._arguments = module, list(arguments)
        self._descriptors, self._log = tuple(descriptors), log
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = self._next_start_at = 0.0
        self._pause = FIRST_PAUSE_SECONDS

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Return how the last process ended, negative for a signal; None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process in a session of its own, so that Ctrl-C reaches only this process.

        It can then finish what it holds before we stop it.
        """
        grace = settings.DRAIN_SECONDS + STOP_MARGIN_SECONDS
        watched = [sys.executable, "-m", "workers.local.parent_watch", str(os.getpid()), str(grace)]
        self._process = subprocess.Popen(
            [*watched, self._module, *self._arguments],
            cwd=settings.BASE_DIR,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            # Standard output belongs to the command; a log line is not part of its answer.
            stdout=self._log if self._log is not None else sys.stderr.fileno(),
            stderr=self._log,
            pass_fds=self._descriptors,
            start_new_session=True,
        )
        self._started_at = time.monotonic()

    def restart_if_dead(self) -> None:
        """Start a process that died again, after a pause that doubles while it keeps dying."""
        if self.is_running:
            return
        now = time.monotonic()
        if self._next_start_at == 0.0:
            if now - self._started_at >= HEALTHY_SECONDS:
                self._pause = FIRST_PAUSE_SECONDS
            self._next_start_at = now + self._pause
            text = "%s ended: exit=%s, starting it again in %.1f s"
            logger.warning(text, self.name, self.exit_code, self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        elif now >= self._next_start_at:
            self._next_start_at = 0.0
            self.start()

    def request_stop(self) -> None:
        if self._process is not None and self.is_running:
            self._process.terminate()

    def wait_stopped(self, deadline: float) -> None:
        """Wait until `deadline` (of time.monotonic) for the process to end, then kill it."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            logger.warning("%s did not end in time and is being killed", self.name)
            self._process.kill()
            self._process.wait()


def stop_all(children: Sequence[Child]) -> None:
    """Stop children together: DRAIN_SECONDS to finish, a little more to hand work back."""
    deadline = time.monotonic() + settings.DRAIN_SECONDS + STOP_MARGIN_SECONDS
    for child in children:
        child.request_stop()
    try:
        for child in children:
            child.wait_stopped(deadline)
    except KeyboardInterrupt:  # asked a second time: now
        for child in children:
            child.wait_stopped(0.0)


def open_standard_streams() -> None:
    """Open what was closed of descriptors 0 to 2 on nothing, before other files get these numbers.

    A socket that became descriptor 0 could not be passed to a child.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one


def open_log(path: Path) -> IO[bytes]:
    """Open a log file at its end for this user alone; one over 10 MB is moved to `.1` first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > 10_000_000:
        path.replace(path.with_name(f"{path.name}.1"))
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def last_line(path: Path) -> str:
    """Return the last line of a log that is not empty, "" where there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


ALL, CPU = "all", "cpu"
LOOK_SECONDS = 0.2
_ENDED_WELL = (None, 0, -signal.SIGTERM)  # not begun, as asked, as asked while it was beginning
# In a process of its own: the supervisor keeps no PyTorch in memory, nor opens a device.
_COUNT = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"


def find_devices() -> list[str]:
    """Return the CUDA devices that PyTorch sees here, none without PyTorch's CUDA build."""
    command = [sys.executable, "-c", _COUNT]
    counted = subprocess.run(command, capture_output=True, text=True, check=False)
    if counted.returncode:
        reason = (counted.stderr.strip().splitlines() or ["no reason was given"])[-1]
        raise CommandError(f"The devices of this machine could not be counted: {reason}")
    return [f"cuda:{index}" for index in range(int(counted.stdout))]


def choose_devices(given: str, present: Sequence[str]) -> list[str]:
    """Return the devices that `--devices` names, where `present` are the CUDA devices.

    `all` is every CUDA device, or the CPU where there is none. The CPU may be named several times,
    for several processes.

    Raises:
        UsageError: one is not here, or a CUDA device is named twice.
    """
    if given.strip() == ALL:
        return list(present) or [CPU]
    named = [name.strip() for name in given.split(",")]
    here = f"here are {', '.join((*present, CPU))}" if present else "here is the cpu alone"
    for name, times in Counter(named).items():
        if name != CPU and name not in present:
            raise UsageError(f"argument --devices: there is no device {name!r}; {here}")
        if name != CPU and times > 1:
            raise UsageError(f"argument --devices: {name} is named {times} times; once is enough")
    return named


def name_workers(base: str, devices: Sequence[str]) -> list[str]:
    """Return a worker's name for each device, the same after every start."""
    seen: Counter[str] = Counter()
    names = []
    for device in devices:
        seen[device] += 1
        number = f"-{seen[device]}" if seen[device] > 1 else ""
        names.append(f"{base}-{device.replace(':', '')}{number}")
    return names


def supervise(command: BaseCommand, options: dict[str, Any]) -> None:
    """Supervise workers until SIGTERM or SIGINT, then have all of them drain together.

    One that ends is started again, with growing pauses.

    Raises:
        CommandError: a worker did not end as it should, or none can start; the text says which.
    """
    open_standard_streams()
    is_elsewhere = bool(options["server"])
    role = options["role"] or (ROLE if is_elsewhere else "all")
    if role == "cpu":
        raise UsageError("argument --devices: a worker of the role cpu uses no device")
    if is_elsewhere:
        key_for(options, role)  # says what does not go together, once for all workers
    present = find_devices()
    devices = choose_devices(options["devices"], present)
    if options["devices"].strip() == ALL and not present:
        command.stdout.write("No CUDA device is here: one worker runs on the CPU.")
    names = name_workers(options["name"] or default_name(role), devices)
    children: dict[Child, str] = {}
    for device, name in zip(devices, names, strict=True):
        arguments = ["worker", "--role", role, "--name", name]
        for option in ("concurrency", "queues", "server", "key"):
            if options[option] not in (None, ""):
                arguments += [f"--{option}", str(options[option])]
        child = Child(f"worker {name}", "manage", arguments, environment={"TTS_DEVICE": device})
        children[child] = device
    try:
        with signals_interrupt():
            try:
                for child, device in children.items():
                    child.start()
                    command.stdout.write(f"{child.name} started: device={device} pid={child.pid}")
                    command.stdout.flush()
                while True:
                    if all((child.exit_code or 0) > 0 for child in children):
                        break  # each has said why; to start them again would end the same way
                    for child in children:
                        child.restart_if_dead()
                    time.sleep(LOOK_SECONDS)
            finally:
                stop_all(list(children))
    except KeyboardInterrupt:
        command.stderr.write("Stopped.")
    failed = [
        f"{child.name} on {device} ended with exit code {child.exit_code}"
        for child, device in children.items()
        if child.exit_code not in _ENDED_WELL
    ]
    if failed:
        raise CommandError("; ".join(failed))
