"""Measure each part of a start, from the process to the first audio, and its peak of memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.bench.machine import make_row, run_facts, spread
from lab.bench.models.presets import write_preset_checkpoint
from lab.bench.models.shapes import preset
from lab.bench.report import BenchFailedError, Options, Plot, Progress, Report
from synth.engine.device import free_cached_memory
from synth.engine.errors import InvalidSpecError
from synth.engine.loading.engine_config import resolve_device

COLUMNS = ("part", "seconds", "seconds_low", "seconds_high", "until_seconds", "peak_megabytes")
ALL = "all"
CHILD_SECONDS = 600
_ROOT = Path(__file__).resolve().parents[2]
_WHY_NULL = dict.fromkeys(
    ("frames_per_second", "ratio_to_baseline", "ratio_to_roofline"),
    "a start is measured in seconds",
)


def run(options: Options, progress: Progress) -> Report:
    """Start an engine in child processes, one after the other.

    Raises:
        InvalidSpecError, CheckpointError: the preset or the checkpoint is not to be had.
        BenchFailedError: a child ended with an error; the text has its last line.
    """
    device = resolve_device(options["device"])
    checkpoint, name = options["checkpoint"], None
    if checkpoint is None:
        name = preset(options["preset"]).name
        folder = options["folder"] / f"{name}-{options['seed']}"
        progress(f"writing or finding {name} in {folder}")
        checkpoint = write_preset_checkpoint(name, folder, seed=options["seed"], device=device)
    facts = run_facts(device, seed=options["seed"], preset=name)
    facts |= {
        "runs": options["runs"],
        "weights_from": "disk" if options["from_disk"] else "page cache, if they were read before",
        "slots": options["slots"],
        "codec_dtype": options["codec_dtype"],
        "graphs": options["graphs"],
        "max_positions": options["max_positions"],
        "first_audio_frames": options["frames"],
    }
    free_cached_memory(device)  # what was drawn here would be missing in the started process
    starts = []
    for index in range(options["runs"]):
        if options["from_disk"]:
            drop_from_page_cache(checkpoint)
        starts.append(_start(checkpoint, options))
        progress(f"start {index + 1}/{options['runs']}: {starts[-1][-1]['until']:.2f} s")
    facts["threads"] = starts[-1][-1]["threads"]
    return Report("cold", facts, _rows(starts, facts, options), COLUMNS, Plot("part", "seconds"))


def drop_from_page_cache(folder: Path) -> None:
    """Ask the system to forget the contents of a folder's files.

    Raises:
        InvalidSpecError: this system cannot be asked.
    """
    if not hasattr(os, "posix_fadvise"):
        raise InvalidSpecError(
            "This system cannot drop files from its cache; leave --from-disk out."
        )
    for path in sorted(folder.iterdir()):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())  # what is not written yet would stay
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _start(checkpoint: Path, options: Options) -> list[dict[str, Any]]:
    """Return a start's parts with `seconds`, `until` and what the child told of them."""
    passed = {
        "checkpoint": str(checkpoint.resolve()),
        "cache_dir": str((options["folder"] / "digests").resolve()),
    }
    keys = (
        "device",
        "dtype",
        "codec_dtype",
        "graphs",
        "slots",
        "max_positions",
        "frames",
        "threads",
    )
    with tempfile.TemporaryDirectory() as temporary:
        plan = Path(temporary) / "plan.json"
        plan.write_text(json.dumps(passed | {key: options[key] for key in keys}), encoding="utf-8")
        begun = time.monotonic()
        done = subprocess.run(
            # -P: the modules beside the script have names of the standard library's.
            [sys.executable, "-P", str(Path(__file__).with_name("cold_child.py")), str(plan)],
            env=os.environ | {"PYTHONPATH": str(_ROOT)},
            capture_output=True,
            text=True,
            timeout=CHILD_SECONDS,
            check=False,
        )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it wrote nothing"])[-1]
        raise BenchFailedError(f"The started process ended with {done.returncode}: {last}")
    parts, before = [json.loads(line) for line in done.stdout.splitlines()], begun
    for part in parts:
        part["seconds"], part["until"] = part["ended"] - before, part["ended"] - begun
        before = part["ended"]
    return parts


def _rows(
    starts: Sequence[list[dict[str, Any]]], facts: dict[str, Any], options: Options
) -> list[dict[str, Any]]:
    rows = []
    for parts in zip(*starts, strict=True):
        values = _values(parts[0]["step"], [part["seconds"] for part in parts])
        values["until_seconds"] = spread([part["until"] for part in parts]).median
        peaks = [part["peak_bytes"] for part in parts]
        values["peak_megabytes"] = None if None in peaks else max(peaks) / 1e6
        rows.append(values)
    whole = _values(ALL, [start[-1]["until"] for start in starts])
    rows.append(rows[-1] | whole)
    common = {"dtype": options["dtype"], "cache_length": options["max_positions"]}
    return [make_row(facts, common | row, why_null=_WHY_NULL) for row in rows]


def _values(part: str, seconds: list[float]) -> dict[str, Any]:
    found = spread(seconds)
    return {
        "part": part,
        "seconds": found.median,
        "seconds_low": found.low,
        "seconds_high": found.high,
    }
