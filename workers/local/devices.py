"""Run a worker process for each device of this host, under one supervisor."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ttsweb.commands.base import BaseCommand, CommandError, UsageError
from workers.local.children import Child, open_standard_streams, signals_interrupt, stop_all
from workers.process.status import default_name

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


def run(command: BaseCommand, options: dict[str, Any]) -> None:
    """Supervise workers until SIGTERM or SIGINT, then have all of them drain together.

    One that ends is started again, with growing pauses.

    Raises:
        CommandError: a worker did not end as it should, or none can start; the text says which.
    """
    open_standard_streams()
    role = options["role"] or "all"
    if role == "cpu":
        raise UsageError("argument --devices: a worker of the role cpu uses no device")
    present = find_devices()
    devices = choose_devices(options["devices"], present)
    if options["devices"].strip() == ALL and not present:
        command.stdout.write("No CUDA device is here: one worker runs on the CPU.")
    names = name_workers(options["name"] or default_name(role), devices)
    children: dict[Child, str] = {}
    for device, name in zip(devices, names, strict=True):
        arguments = ["worker", "--role", role, "--name", name]
        for option in ("concurrency", "queues"):
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
