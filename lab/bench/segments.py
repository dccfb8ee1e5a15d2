"""Measure the engine from requests to audio: many segments at once, with no database."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from lab.bench.arguments import check_context
from lab.bench.machine import make_row, run_facts
from lab.bench.models.presets import preset_models
from lab.bench.models.shapes import preset
from lab.bench.report import BenchFailedError, Options, Progress, Report
from synth.contract import FinishReason, Reference, RenderSpec, Sampling, SegmentAudio
from synth.engine import Engine, EngineConfig
from synth.engine.loading.engine_config import resolve_device

COLUMNS = (
    "dtype",
    "codec_dtype",
    "kernels",
    "graphs",
    "graph_nodes",
    "batch",
    "segments",
    "frames_per_second",
    "acoustic_tokens_per_second",
    "audio_seconds_per_second",
    "full_acoustic_tokens_per_second",
    "wall_seconds",
    "slowest_segment_seconds",
)
_WHY_NULL = {
    "ratio_to_baseline": "the plain loop renders no segments; see ar",
    "ratio_to_roofline": "prompts, frames and codec have no common floor; see ar and codec",
}
_WORDS = "a lamp went out along the river while nobody counted the boats that came and went again"
_LONGEST, _SHORTEST = 1.5, 0.5  # of the mean number of frames


def run(options: Options, progress: Progress) -> Report:
    """Submit all segments at once and wait for all audio.

    The voices are known beforehand; every text is another one. The row's figures count finished
    frames over the whole time, the last slots' running empty included; `full_...` is while every
    slot had work.

    Raises:
        InvalidSpecError: the preset, the device or a length is not to be had.
        BenchFailedError: a segment ended early.
    """
    shape, device = preset(options["preset"]), resolve_device(options["device"])
    longest = int(_LONGEST * options["frames"]) + 1
    positions = options["text_letters"] + options["voice_frames"] + longest + 256
    positions = max(positions, options["max_positions"])
    check_context(shape, positions)
    facts = run_facts(device, seed=options["seed"], preset=shape.name)
    keys = ("segments", "frames", "text_letters", "voices", "voice_frames", "slots")
    facts |= {key: options[key] for key in keys} | {"voice_cached": True}
    config = EngineConfig(
        checkpoint=Path(shape.name),  # only a name here: nothing is read from it
        device=str(device),
        dtype=options["dtype"],
        codec_decode_dtype=options["codec_dtype"],
        slots=options["slots"],
        max_positions=positions,
        graphs=options["graphs"],
        kernels=options["kernels"],
    )
    progress(f"starting an engine of {options['slots']} slots")
    models = preset_models(
        shape.name,
        device=device,
        dtype=options["dtype"],
        codec_decode_dtype=options["codec_dtype"],
        seed=options["seed"],
        kernels=options["kernels"],
    )
    engine = Engine(config, models)
    try:
        engine.warm_up()
        bench = _Bench(engine, options)
        row = bench.row(progress) | {
            "dtype": models.dual_ar.weight_format,
            "codec_dtype": options["codec_dtype"],
            "kernels": engine.describe()["kernels"],
            "graphs": engine.describe()["graphs"],
            "graph_nodes": engine.describe()["graph_nodes"],
        }
    finally:
        engine.close()
    return Report("segments", facts, [make_row(facts, row, why_null=_WHY_NULL)], COLUMNS)


class _Bench:
    """Hold the engine and its requests."""

    def __init__(self, engine: Engine, options: Options) -> None:
        self.engine, self.options = engine, options
        self._rng = np.random.default_rng(options["seed"])
        self._voices = [self._voice() for _ in range(options["voices"])]
        self._ended: SimpleQueue[tuple[int, float]] = SimpleQueue()

    def row(self, progress: Progress) -> dict[str, Any]:
        """Render everything and return the figures."""
        for voice in self._voices:  # not counted: it makes the voice known
            self.engine.render(RenderSpec("Known.", voice, Sampling(max_frames=2)))
        specs = [self._spec(number) for number in range(self.options["segments"])]
        progress(f"rendering {len(specs)} segments")
        begun = time.perf_counter()
        futures = [self._submit(number, spec) for number, spec in enumerate(specs)]
        takes = [future.result() for future in futures]
        wall = time.perf_counter() - begun
        for spec, take in zip(specs, takes, strict=True):
            _check(spec, take)
        # A future wakes who waits for it before it calls back: the last call may be yet to come.
        times = dict(self._ended.get() for _ in specs)
        ended = [times[number] - begun for number in range(len(specs))]
        return self._figures(takes, ended, wall)

    def _submit(self, number: int, spec: RenderSpec) -> Future[SegmentAudio]:
        future = self.engine.submit(spec)
        future.add_done_callback(lambda _: self._ended.put((number, time.perf_counter())))
        return future

    def _spec(self, number: int) -> RenderSpec:
        """Return a segment whose text is its own; lengths go round between the two ends."""
        letters, mean = self.options["text_letters"], self.options["frames"]
        text = (f"{number} {_WORDS} " * letters)[:letters]
        share = _SHORTEST + (_LONGEST - _SHORTEST) * self._rng.random()
        sampling = Sampling(seed=number, max_frames=max(int(share * mean), 1))
        return RenderSpec(text, self._voices[number % len(self._voices)], sampling)

    def _voice(self) -> Reference:
        codec = self.engine._models.decoder.config
        size = min(codec.semantic_codebook_size, codec.residual_codebook_size)
        shape = (codec.num_codebooks, self.options["voice_frames"])
        return Reference("A voice.", self._rng.integers(0, size, shape, dtype=np.int16))

    def _figures(
        self, takes: Sequence[SegmentAudio], ended: Sequence[float], wall: float
    ) -> dict[str, Any]:
        num_codebooks = takes[0].codes.shape[0]
        frames = [take.codes.shape[1] for take in takes]
        speed = sum(frames) / wall
        full = full_rate(frames, ended, slots=self.engine.slots)
        return {
            "batch": self.engine.slots,
            "cache_length": self.engine.describe()["max_positions"],
            "segments": len(takes),
            "frames": sum(frames),
            "frames_per_second": speed,
            "acoustic_tokens_per_second": num_codebooks * speed,
            "audio_seconds_per_second": speed / self.engine.frame_rate,
            "full_acoustic_tokens_per_second": None if full is None else num_codebooks * full,
            "wall_seconds": wall,
            "slowest_segment_seconds": max(
                take.timings.prefill_seconds + take.timings.decode_seconds for take in takes
            ),
            "codec_seconds": sum(take.timings.codec_seconds for take in takes),
        }


def full_rate(frames: Sequence[int], ended: Sequence[float], *, slots: int) -> float | None:
    """Return the finished frames per second while no slot stood empty for lack of segments.

    That is until as many segments are left as there are slots; None where there are too few.

    Args:
        frames: of each segment; `ended`: seconds from the start at which it was done.
    """
    counted = len(frames) - slots
    if counted < slots:
        return None
    order = sorted(range(len(frames)), key=ended.__getitem__)[:counted]
    return sum(frames[index] for index in order) / ended[order[-1]]


def _check(spec: RenderSpec, take: SegmentAudio) -> None:
    """Raise BenchFailedError when a segment is not as long as was asked for."""
    made, wanted = take.codes.shape[1], spec.sampling.max_frames
    if take.finish_reason is not FinishReason.FRAME_LIMIT or made != wanted:
        raise BenchFailedError(f"A segment of {wanted} frames ended with {made}.")
