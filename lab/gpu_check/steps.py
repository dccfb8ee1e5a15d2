"""Run the steps of a part one after the other: each is kept when it ends, none stops the others."""

from __future__ import annotations

import argparse
import datetime
import gc
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from lab.bench.machine import commit, device_name
from lab.bench.models.shapes import preset
from lab.gpu_check.records import BEGUN, DONE, FAILED, MISMATCH, NOT_MEASURED, Records
from synth.engine.errors import InvalidSpecError
from synth.engine.loading.engine_config import FP8_CAPABILITY, find_card, resolve_device

STEP_LIMIT, LEAST_SECONDS = 3, 20  # a step is stopped after three times what it should take
OVERTIME = 30  # seconds that the last step may go on behind the end of a run


class NotMeasuredError(Exception):
    """A step cannot be done here; the text says why."""


@dataclass(frozen=True, slots=True)
class Context:
    """Hold where steps run: the device, the model's shape, the golden folder, room for files."""

    device: torch.device
    preset: str
    golden: Path
    scratch: Path
    progress: Callable[[str], None]

    @property
    def on_gpu(self) -> bool:
        """Return whether this is what the figures are for; a CPU only shows that steps run."""
        return self.device.type == "cuda"

    def need_gpu(self, what: str) -> None:
        """Raise NotMeasuredError on a CPU."""
        if not self.on_gpu:
            raise NotMeasuredError(f"{what} needs a GPU, and this ran on {self.device}")


@dataclass(slots=True)
class Found:
    """Hold what a step found.

    `rows` are a table whose `columns` are shown; `figures` go into the table of figures by name;
    `mismatches` say what is wrong, in a sentence each.
    """

    rows: Sequence[Mapping[str, Any]] = ()
    columns: Sequence[str] = ()
    figures: dict[str, float] = field(default_factory=dict)
    mismatches: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def has_fp8(device: torch.device) -> bool:
    """Return whether a device multiplies fp8; a CPU does in Triton's interpreter."""
    return device.type != "cuda" or find_card(device).capability >= FP8_CAPABILITY


@dataclass(frozen=True, slots=True)
class Step:
    """Name a step; `seconds` is what it takes on a GPU at most, by estimate."""

    name: str
    seconds: float
    run: Callable[[Context], Found]


@dataclass(frozen=True, slots=True)
class Part:
    """Run steps within a time; `facts` are what every record says of where it was found."""

    name: str
    steps: Sequence[Step]
    records: Records
    run_name: str
    deadline: float  # of time.monotonic, which all processes of a machine share
    facts: Mapping[str, Any]
    again: bool = False

    def run(self, context: Context) -> int:
        """Run what is wanted and fits; return 0, or DEVICE_LOST when this process is of no use."""
        for step in self._order():
            left = self.deadline - time.monotonic()
            if context.on_gpu and left < step.seconds:
                self._leave_out(step, f"would take {step.seconds:.0f} s, {max(left, 0):.0f} s left")
                continue
            if left <= 0:
                self._leave_out(step, "the time was over")
                continue
            context.progress(f"{self.name}: {step.name}")
            if not self._run_step(step, context):
                return DEVICE_LOST
        return 0

    def _order(self) -> list[Step]:
        """Return the steps to be run, those that were cut off before behind the others."""
        fresh, cut_off = [], []
        for step in self.steps:
            record = self.records.read(self.name, step.name)
            if record is None:
                fresh.append(step)
            elif record["run"] == self.run_name or (self._is_kept(record) and not self.again):
                continue
            elif record["status"] == BEGUN:
                cut_off.append(step)
            else:
                fresh.append(step)
        return fresh + cut_off

    def _is_kept(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record of an earlier run holds here; one that failed is tried again."""
        keys = ("device", "preset", "commit")
        return record["status"] == DONE and all(record.get(k) == self.facts.get(k) for k in keys)

    def _leave_out(self, step: Step, reason: str) -> None:
        earlier = self.records.read(self.name, step.name)
        if earlier is None or earlier["status"] != DONE:
            self._write(step, NOT_MEASURED, reason=reason)

    def _run_step(self, step: Step, context: Context) -> bool:
        """Run a step and keep what it found; False when the device answers no more."""
        self._write(step, BEGUN, ends_by=self._ends_by(step, context))
        begun = time.perf_counter()
        try:
            found = step.run(context)
        except NotMeasuredError as reason:
            self._write(step, NOT_MEASURED, reason=str(reason))
        except Exception as error:  # noqa: BLE001
            lines = traceback.format_exception(error)
            reason_text = f"{type(error).__name__}: {error}".splitlines()[0]
            self._write(step, FAILED, reason=reason_text, traceback="".join(lines))
        else:
            self._keep(step, found, time.perf_counter() - begun)
        return _device_answers(context.device)

    def _ends_by(self, step: Step, context: Context) -> float:
        """Return when a step is to be stopped; on a CPU nothing is known of its time."""
        latest = self.deadline + OVERTIME
        limit = STEP_LIMIT * max(step.seconds, LEAST_SECONDS)
        return min(time.monotonic() + limit, latest) if context.on_gpu else latest

    def _keep(self, step: Step, found: Found, seconds: float) -> None:
        self._write(
            step,
            MISMATCH if found.mismatches else DONE,
            reason="; ".join(found.mismatches[:3]),
            seconds=seconds,
            rows=list(found.rows),
            columns=list(found.columns),
            figures=found.figures,
            mismatches=found.mismatches,
            notes=found.notes,
        )

    def _write(self, step: Step, status: str, **more: Any) -> None:
        head = {
            "part": self.name,
            "step": step.name,
            "order": self.steps.index(step),
            "status": status,
            "run": self.run_name,
        }
        self.records.write({**head, **self.facts, **more})


def _device_answers(device: torch.device) -> bool:
    """Free what a step left on the device; False when a kernel has broken its context."""
    if device.type != "cuda":
        return True
    gc.collect()
    try:
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    except RuntimeError:
        return False
    return True


def steps_of(part: str) -> Sequence[Step]:
    """Return a part's steps in their order."""
    steps: Sequence[Step] = import_module(f"lab.gpu_check.{part}").STEPS
    return steps


def run_part(options: argparse.Namespace, root: Path) -> int:
    """Run the steps that are wanted and not done yet; return the process's exit code."""
    try:
        device = resolve_device("cuda:0" if options.device == "cuda" else options.device)
        shape = preset(options.preset or ("full" if device.type == "cuda" else "tiny"))
    except InvalidSpecError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    steps = {step.name: step for step in steps_of(options.part)}
    wanted = options.only or list(steps)
    unknown = [name for name in wanted if name not in steps]
    if unknown:
        sys.stderr.write(f"part {options.part} has no step {unknown[0]}: {', '.join(steps)}\n")
        return 2
    facts = {
        "device": device_name(device),
        "preset": shape.name,
        "commit": commit(),
        "torch": torch.__version__,
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    part = Part(
        options.part,
        [steps[name] for name in wanted],
        Records(options.out),
        options.worker,
        options.deadline,
        facts,
        again=options.again,
    )
    golden = root / "tests" / "data" / "golden"
    return part.run(Context(device, shape.name, golden, options.scratch, _progress))


def _progress(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


DEVICE_LOST = 75  # exit code of a process whose CUDA context answers no more
_LOOK_SECONDS = 0.2
_START_SECONDS = 120  # imports, and the device's own start, before a step is begun


def watch(command: Sequence[str], records: Records, *, run: str, deadline: float) -> str | None:
    """Run `command`, over and over while it ends in the middle of a step; that step has failed.

    The command runs the steps that this run has not begun yet and ends with 0 behind the last.

    Args:
        run: the name of the run, as it stands in its records.
        deadline: of time.monotonic; a process that has begun no step by then is stopped.

    Returns:
        None, or what ended a process before it began any step.
    """
    while True:
        code, stopped = _run_once(command, records, run, deadline)
        if code == 0:
            return None
        record = records.begun(run)
        why = "took too long and was stopped" if stopped else _ending(code)
        if record is None and code == DEVICE_LOST:
            continue  # the step has said itself why it failed
        if record is None:
            return f"the process that runs the steps {why}"
        records.write({**record, "status": FAILED, "reason": why})


def _run_once(
    command: Sequence[str], records: Records, run: str, deadline: float
) -> tuple[int, bool]:
    """Return the exit code of one process and whether it was stopped for its time."""
    latest = max(deadline, time.monotonic()) + _START_SECONDS
    with _group(command) as child:
        while child.poll() is None:
            record = records.begun(run)
            if time.monotonic() > (record["ends_by"] if record else latest):
                return -signal.SIGKILL, True
            time.sleep(_LOOK_SECONDS)
        return child.returncode, False


@contextmanager
def _group(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process in a group of its own; however this ends, none of the group is left."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    child = subprocess.Popen(command, start_new_session=True)
    try:
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        signal.signal(signal.SIGTERM, before)


def _ending(code: int) -> str:
    if code < 0:
        return f"ended the process with {signal.Signals(-code).name}"
    return f"ended the process with exit code {code}"
