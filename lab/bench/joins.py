"""Measure how far pitch and level jump between segments, with and without history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile

from lab.bench.machine import make_row, run_facts
from lab.bench.report import BenchFailedError, Options, Progress, Report
from lab.training.evaluation.pitch import frame_pitches
from lab.training.evaluation.spectra import HOP, RATE
from synth.audio.filters import resample
from synth.card import read_card
from synth.contract import FinishReason, Reference, RenderSpec, Sampling, Turn, frame_cap
from synth.engine import Engine, EngineConfig
from synth.engine.loading.engine_config import resolve_device

COLUMNS = (
    "history",
    "joins",
    "pitch_step_semitones",
    "pitch_step_p90",
    "level_step_db",
    "level_step_p90",
    "inside_pitch_semitones",
    "inside_level_db",
    "ended_share",
)
_WHY_NULL = {
    "frames_per_second": "what is measured is sound, not speed",
    "ratio_to_baseline": "the plain loop renders no segments; see ar",
    "ratio_to_roofline": "what is measured is sound, not speed",
}
SENTENCES = (
    "The old gate was open again.",
    "Nobody had closed it for a long time.",
    "Water ran under the bridge all night.",
    "In the morning it was gone.",
    "She came back with the first snow.",
    "Everybody knew her by her step.",
    "The lamp was still on in the long room.",
    "He put the letter on the table.",
)
_SIDE_SECONDS = 0.6  # that are compared on each side of a join
_FEWEST_VOICED = 5  # frames of 10 ms
_ACTIVE_DB = 30.0  # below the loudest frame of a side there is no speech
Wave = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]


def run(options: Options, progress: Progress) -> Report:
    """Render chains of sentences with each history, and measure their joins.

    A row has the median and the 90th percentile of the steps' sizes. What stands `inside` are the
    same steps at the middle of segments, where nothing is joined.

    Raises:
        InvalidSpecError: the device is not to be had.
        CheckpointError: the checkpoint is incomplete.
        BenchFailedError: too little of the model's sound is voiced.
    """
    checkpoint: Path = options["checkpoint"]
    device = resolve_device(options["device"])
    facts = run_facts(device, seed=options["seed"], preset=None)
    facts |= {"checkpoint": str(checkpoint), "chains": options["chains"]}
    engine = Engine.load(
        EngineConfig(checkpoint=checkpoint, device=str(device), slots=options["slots"], strict=True)
    )
    try:
        clips = sorted((checkpoint / "clips").glob("*.wav")) or [options["clip"]]
        voices = [_voice(engine, clip, options["transcript"]) for clip in clips]
        rows = []
        for history in options["history"]:
            progress(f"rendering {options['chains']} chains with history {history}")
            chains = _render(engine, voices, history, options)
            values = {"history": history, "dtype": engine.describe()["dtype"], **_figures(chains)}
            rows.append(make_row(facts, values, why_null=_WHY_NULL))
    finally:
        engine.close()
    return Report("joins", facts, rows, COLUMNS)


def _voice(engine: Engine, clip: Path | None, transcript: str) -> Reference:
    if clip is None:
        raise BenchFailedError("This checkpoint has no clips; give one with --clip.")
    samples, rate = soundfile.read(clip, dtype="float32", always_2d=True)
    return Reference(transcript, engine.encode_reference(samples.T, rate))


def _render(
    engine: Engine, voices: Sequence[Reference], history: int, options: Options
) -> list[list[tuple[Wave, bool]]]:
    """Return the segments of each chain at `RATE`, and whether the model ended them.

    Chains go abreast.
    """
    card = read_card(options["checkpoint"])
    said: list[list[Turn]] = [[] for _ in range(options["chains"])]
    chains: list[list[tuple[Wave, bool]]] = [[] for _ in said]
    for place in range(options["length"]):
        futures = []
        for number, turns in enumerate(said):
            text = SENTENCES[(number + place) % len(SENTENCES)]
            sampling = Sampling(
                seed=options["seed"] + 1000 * number + place,
                temperature=card.temperature,
                top_p=card.top_p,
                top_k=card.top_k,
                max_frames=frame_cap(text),
            )
            before = tuple(turns[len(turns) - min(history, len(turns)) :])
            spec = RenderSpec(text, voices[number % len(voices)], sampling, before)
            futures.append((text, engine.submit(spec)))
        for number, (text, future) in enumerate(futures):
            take = future.result()
            said[number].append(Turn(text, take.codes))
            wave = np.concatenate(list(resample([take.audio], take.sample_rate, RATE)))
            chains[number].append((wave, take.finish_reason is FinishReason.END))
    return chains


def _figures(chains: Sequence[Sequence[tuple[Wave, bool]]]) -> dict[str, Any]:
    waves = [[wave for wave, _ in chain] for chain in chains]
    joins = [pair for chain in waves for pair in pairwise(chain)]
    halves = [np.array_split(wave, 2) for chain in waves for wave in chain]
    pitch, level = steps(joins, pitch_step), steps(joins, level_step)
    ends = [ended for chain in chains for _, ended in chain]
    return {
        "joins": len(joins),
        "pitch_step_semitones": float(np.median(pitch)),
        "pitch_step_p90": float(np.quantile(pitch, 0.9)),
        "level_step_db": float(np.median(level)),
        "level_step_p90": float(np.quantile(level, 0.9)),
        "inside_pitch_semitones": float(np.median(steps(halves, pitch_step))),
        "inside_level_db": float(np.median(steps(halves, level_step))),
        "ended_share": sum(ends) / len(ends),
    }


def steps(
    joins: Sequence[Sequence[Wave]], step: Callable[[Wave, Wave], float | None]
) -> list[float]:
    """Return the steps that can be told.

    Raises:
        BenchFailedError: there is none.
    """
    found = [one for before, after in joins if (one := step(before, after)) is not None]
    if not found:
        raise BenchFailedError("Too little of this model's sound is voiced to measure its joins.")
    return found


def pitch_step(before: Wave, after: Wave) -> float | None:
    """Return by how many semitones the pitch after a join is off that before it, or None.

    Waves are at `RATE`, the rate at which the pitch is measured.
    """
    sides = _sides(frame_pitches(before), frame_pitches(after), lambda pitches: pitches > 0)
    if min(map(len, sides)) < _FEWEST_VOICED:
        return None
    first, second = (float(np.median(side)) for side in sides)
    return abs(12 * float(np.log2(second / first)))


def level_step(before: Wave, after: Wave) -> float | None:
    """Return by how many dB the speech after a join is off that before it, pauses left out."""
    sides = _sides(
        _levels(before), _levels(after), lambda db: db > db.max(initial=-120) - _ACTIVE_DB
    )
    if min(map(len, sides)) < _FEWEST_VOICED:
        return None
    first, second = (10 * np.log10(np.mean(10 ** (side / 10))) for side in sides)
    return abs(float(second - first))


def _levels(wave: Wave) -> Floats:
    """Return the level of every 10 ms in dB."""
    frames = np.asarray(wave[: len(wave) // HOP * HOP], np.float64).reshape(-1, HOP)
    return np.asarray(10 * np.log10(np.square(frames).mean(1) + 1e-12))


def _sides(
    before: Floats, after: Floats, wanted: Callable[[Floats], npt.NDArray[np.bool_]]
) -> tuple[Floats, Floats]:
    """Return the last and the first frames of two segments that are wanted, one side's time."""
    count = round(_SIDE_SECONDS * RATE / HOP)
    return before[wanted(before)][-count:], after[wanted(after)][:count]
