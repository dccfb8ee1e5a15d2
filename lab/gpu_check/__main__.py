"""Check and measure the engine on a machine with a GPU, in three parts of some minutes each.

Usage: python -m lab.gpu_check --part parity|speed|serving

Needs torch, numpy and safetensors besides this checkout: no database, no network, no checkpoint.
Each step's result is a JSON file in the output folder as soon as the step ends, and a later call
with the same folder goes on from there: what is done stays, the rest is tried again. On a CPU it
shows that the steps run, with a tiny model, and says what it left out.

Exit code 0: nothing found wrong; 1: a step failed or found a mismatch; 2: wrong usage.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from lab.gpu_check.figures import COLUMNS, as_table, figure_rows
from lab.gpu_check.records import DONE, NOT_MEASURED, Record, Records
from lab.gpu_check.steps import watch

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("parity", "speed", "serving")
SECONDS = 460


def main() -> int:
    """Run a part, or one of its processes; return the exit code."""
    options = read_arguments()
    if options.list:
        return list_steps()
    if options.worker:
        return work(options)
    run, deadline = uuid.uuid4().hex[:8], time.monotonic() + options.seconds
    records = Records(options.out)
    command = [sys.executable, "-m", "lab.gpu_check", *sys.argv[1:]]
    command += ["--worker", run, "--deadline", str(deadline), "--out", str(options.out)]
    # Made here, so that it goes also when a step's process is stopped.
    with tempfile.TemporaryDirectory() as scratch:
        command += ["--scratch", scratch]
        problem = watch(command, records, run=run, deadline=deadline)
    return report(records, options.part, problem)


def read_arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--part", choices=PARTS, default=None)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    parser.add_argument("--preset", help="tiny, mid or full (default: full, tiny on a CPU)")
    parser.add_argument("--out", type=Path, default=default_out(), help="(default: %(default)s)")
    parser.add_argument("--again", action="store_true", help="also what an earlier run has found")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for the part")
    parser.add_argument("--only", type=lambda text: text.split(","), help="steps with commas")
    parser.add_argument("--list", action="store_true", help="name the steps of all parts")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part is None and not options.list:
        parser.error(f"--part is needed: one of {', '.join(PARTS)}")
    return options


def default_out() -> Path:
    """Return the folder that a device machine hands back, or one in the checkout."""
    return Path(os.environ["OUT"]) if os.environ.get("OUT") else ROOT / "data" / "gpu_check"


def list_steps() -> int:
    """Print every part's steps with what they take on a GPU."""
    from lab.gpu_check.steps import steps_of

    rows = [
        {"part": part, "step": step.name, "seconds": f"{step.seconds:.0f}"}
        for part in PARTS
        for step in steps_of(part)
    ]
    sys.stdout.write(as_table(rows, ("part", "step", "seconds")) + "\n")
    return 0


def work(options: argparse.Namespace) -> int:
    """Run the steps of the part in this process."""
    from lab.gpu_check.steps import run_part

    return run_part(options, ROOT)


def report(records: Records, part: str, problem: str | None) -> int:
    """Print what the part's steps found, the figures last; return the exit code."""
    found = [record for record in records.all() if record["part"] == part]
    found.sort(key=lambda record: record.get("order", 0))
    for record in found:
        sys.stdout.write(describe_record(record) + "\n")
    if problem:
        sys.stdout.write(f"{part}: {problem}\n")
    newest = max(found, key=lambda record: str(record.get("at")), default=None)
    if newest is not None:
        device, preset = str(newest.get("device")), str(newest.get("preset"))
        rows = figure_rows(
            records.all(), device=device, preset=preset, on_gpu=device.startswith("cuda")
        )
        sys.stdout.write(f"\nFigures of {device}, model {preset}\n")
        sys.stdout.write(as_table(rows, COLUMNS) + "\n")
    wrong = [r["step"] for r in found if r["status"] not in (DONE, NOT_MEASURED)]
    if wrong:
        sys.stdout.write(f"\nnot right: {', '.join(wrong)}\n")
    return 1 if wrong or problem else 0


def describe_record(record: Record) -> str:
    """Return a step's lines: its status, what is to be said of it, its table."""
    head = f"\n[{record['status']}] {record['part']} {record['step']}"
    if record.get("seconds") is not None:
        head += f", {record['seconds']:.1f} s"
    lines = [head, *([f"  {record['reason']}"] if record.get("reason") else [])]
    lines += [f"  {note}" for note in record.get("notes", [])]
    rows: list[dict[str, Any]] = record.get("rows") or []
    if rows:
        lines.append(as_table(rows, record["columns"]))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
