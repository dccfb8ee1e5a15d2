"""Be the process that runs a part's steps: the only one that imports torch."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import torch

from lab.bench.machine import commit, device_name
from lab.gpu_check.records import Records
from lab.gpu_check.steps import Context, Part, Step
from synth.engine.errors import InvalidSpecError
from synth.engine.loading.engine_config import resolve_device
from synth.engine.presets.shapes import preset


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
