"""Measure what a GPU's number formats change in the logits, in emulation on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from lab.bench.machine import make_row, run_facts
from lab.bench.models.emulation import emulate_checkpoint, emulate_preset
from lab.bench.models.shapes import preset
from lab.bench.report import Options, Progress, Report
from lab.bench.stepping import measure_agreement
from synth.engine.model.dual_ar import DualAR

COLUMNS = (
    "dtype",
    "batch",
    "error_to_bfloat16",
    "same_as_bfloat16",
    "error_to_float32",
    "same_as_float32",
)
_EXACT = ("bfloat16", "float32")
_WHY_NULL = {
    "frames_per_second": "what is measured is numbers, not speed",
    "ratio_to_baseline": "what is measured is numbers, not speed",
    "ratio_to_roofline": "what is measured is numbers, not speed",
}


def run(options: Options, progress: Progress) -> Report:
    """Hold each format's logits to those of bfloat16 and of float32.

    All read the same random speech. `error` is the difference's norm as a share of the logits';
    `same` the share of rows with the same most likely token or code.

    Raises:
        CheckpointError: the checkpoint is incomplete.
        InvalidSpecError: there is no such preset.
    """
    seed, checkpoint = options["seed"], options["checkpoint"]
    emulate = _emulator(checkpoint, options["preset"], seed)
    name = None if checkpoint else options["preset"]
    facts = run_facts(torch.device("cpu"), seed=seed, preset=name)
    facts |= {"checkpoint": checkpoint and str(checkpoint), "frames": options["frames"]}
    exact = {dtype: emulate(dtype) for dtype in _EXACT}
    rows = []
    for dtype in options["dtype"]:
        model = exact[dtype] if dtype in exact else emulate(dtype)
        for streams in options["batch"]:
            progress(f"comparing {dtype}, {streams} streams")
            found = {"dtype": dtype, "batch": streams}
            for other, theirs in exact.items():
                one = measure_agreement(
                    model, theirs, frames=options["frames"], seed=seed, streams=streams
                )
                found |= {f"error_to_{other}": one.logits_error}
                found |= {f"same_as_{other}": one.top1_agreement}
            rows.append(make_row(facts, found, why_null=_WHY_NULL))
    return Report("agreement", facts, rows, COLUMNS)


def _emulator(checkpoint: Path | None, name: str, seed: int) -> Callable[[str], DualAR]:
    """Return what makes the model in a number format."""
    if checkpoint is not None:
        return partial(emulate_checkpoint, checkpoint)
    return partial(emulate_preset, preset(name), seed=seed)
