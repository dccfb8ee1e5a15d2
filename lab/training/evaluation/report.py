"""Evaluate a checkpoint folder and put its figures into one object, a table and pictures."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lab.bench.models.emulation import emulate_checkpoint
from lab.training.evaluation.measure import Evaluation
from lab.training.evaluation.pictures import write_melodies, write_spectrograms
from lab.training.evaluation.recognition import recogniser
from lab.training.evaluation.scores import GOALS, Figure, as_json
from lab.training.evaluation.speaker_embedding import find_weights
from lab.training.evaluation.speaking import Report, Voices
from synth.contract import Sampling
from synth.engine import Engine, EngineConfig
from synth.engine.loading.loaded_models import load_models

SPECTROGRAMS, MELODIES = "spectrograms.png", "melodies.svg"


def evaluate(
    checkpoint: Path,
    out: Path,
    *,
    subjects: Collection[str],
    most: int | None,
    sampling: Sampling,
    threads: int,
    report: Report,
    gpu_dtype: str | None = None,
) -> dict[str, Any]:
    """Return the figures of a checkpoint; pictures go to the folder `out`.

    Each line of spectrograms is the teacher's speech, its way through the codec, and the model's.

    Args:
        subjects: of `scores.SUBJECTS`.
        most: sentences of each kind at most; None for all.
        gpu_dtype: speak in this number format of a GPU, emulated; None for float32.

    Raises:
        StepError: extra_missing, a package is not installed; the text says how to get it.
        EngineError: the checkpoint cannot be used.
    """
    if {"words", "numbers"} & set(subjects):
        recogniser()
    if "speaker" in subjects:
        find_weights()
    config = EngineConfig(checkpoint, device="cpu", dtype="float32", slots=1, threads=threads)
    engine = _load(config, gpu_dtype)
    try:
        engine.warm_up()
        voices = Voices(engine, checkpoint, sampling)
        evaluation = Evaluation(voices, set(subjects), most, report)
        evaluation.run()
    finally:
        engine.close()
    if evaluation.pictures.waves:
        write_spectrograms(out / SPECTROGRAMS, evaluation.pictures.waves)
    if evaluation.pictures.melodies:
        write_melodies(out / MELODIES, evaluation.pictures.melodies)
    figures = evaluation.scores.figures()
    seconds = max(voices.audio_seconds, 1e-9)
    figures["real_time_factor"] = _single("real_time_factor", voices.work_seconds / seconds)
    files = [path for path in checkpoint.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    figures["bytes"] = _single("bytes", size)
    medians = {
        name: round(float(np.median(hz)), 1) for name, hz in sorted(evaluation.pitches.items())
    }
    return {**as_json(figures), "median_pitch_hz": medians}


def _load(config: EngineConfig, gpu_dtype: str | None) -> Engine:
    """Return an engine, with its transformers in a number format of a GPU where one is given."""
    if gpu_dtype is None:
        return Engine.load(config)
    config = replace(config, kernels="off")
    models = load_models(config)
    return Engine(config, replace(models, dual_ar=emulate_checkpoint(config.checkpoint, gpu_dtype)))


def _single(name: str, value: float) -> Figure:
    goal = GOALS[name]
    return Figure(round(value, 4), None, None, goal.reach, goal.aim, 1)


def table(result: dict[str, Any]) -> str:
    """Return the figures as lines: name, the three values, the goals, the verdict and the count."""
    heads = ("value", "teacher", "round trip", "reach", "aim", "count")
    lines = [f"{'figure':26}" + "".join(f"{head:>12}" for head in heads)]
    for name in GOALS:
        if name not in result:
            continue
        figure = Figure(**result[name])
        sign = "<=" if GOALS[name].low else ">="
        goals = ["" if one is None else f"{sign} {one:.3g}" for one in (figure.reach, figure.aim)]
        values = [
            "" if one is None else f"{one:.4g}"
            for one in (figure.value, figure.teacher, figure.round_trip)
        ]
        cells = (*values, *goals, str(figure.count))
        lines.append(
            f"{name:26}" + "".join(f"{cell:>12}" for cell in cells) + f"  {figure.verdict(name)}"
        )
    pitches = ", ".join(f"{name} {hz:g}" for name, hz in result["median_pitch_hz"].items())
    if pitches:
        lines.append(f"median pitch in Hz: {pitches}")
    return "\n".join(lines)
