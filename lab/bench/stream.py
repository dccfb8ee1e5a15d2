"""Measure the time from a request to its first audio, idle and beside other work."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from lab.bench.arguments import check_context
from lab.bench.machine import make_row, run_facts
from lab.bench.models.presets import preset_models
from lab.bench.models.shapes import preset
from lab.bench.report import BenchFailedError, Options, Plot, Progress, Report
from synth.contract import Reference, RenderSpec, Sampling, SegmentAudio
from synth.engine import Engine, EngineConfig
from synth.engine.loading.engine_config import resolve_device

COLUMNS = (
    "voice",
    "busy_slots",
    "callers",
    "requests_per_second",
    "first_audio_ms",
    "first_audio_ms_low",
    "first_audio_ms_p95",
    "first_audio_ms_high",
    "first_chunk_frames",
    "frames_per_second",
    "real_time_factor",
    "longest_gap_ms",
)
BUSY_TIMES = 10  # the frames of a request beside which others are measured, over theirs
VOICES = ("none", "new", "cached")
_WHY_NULL = {
    "ratio_to_baseline": "the plain loop does not stream",
    "ratio_to_roofline": "prompt, frames and codec have no common floor; see ar, prefill and codec",
}
_WORDS = "the rain fell on a quiet town while someone counted every lamp along its narrow river"


def run(options: Options, progress: Progress) -> Report:
    """Stream requests one after the other: without a voice, with new voices, with a known one.

    With more than one caller each sends its requests one after the other, all of a known voice.

    Raises:
        InvalidSpecError: the preset, the device or a length is not to be had.
        BenchFailedError: a stream gave no audio.
    """
    shape, device = preset(options["preset"]), resolve_device(options["device"])
    longest = BUSY_TIMES * options["frames"] if any(options["busy"]) else options["frames"]
    positions = options["text_letters"] + options["voice_frames"] + longest + 256
    check_context(shape, positions)
    models = preset_models(
        shape.name,
        device=device,
        dtype=options["dtype"],
        codec_decode_dtype=options["codec_dtype"],
        seed=options["seed"],
    )
    facts = run_facts(device, seed=options["seed"], preset=shape.name)
    keys = ("requests", "frames", "text_letters", "voice_frames", "slots", "codec_dtype", "graphs")
    facts |= {key: options[key] for key in keys}
    config = EngineConfig(
        checkpoint=Path(shape.name),  # only a name here: nothing is read from it
        device=str(device),
        dtype=options["dtype"],
        codec_decode_dtype=options["codec_dtype"],
        slots=options["slots"],
        max_positions=positions,
        graphs=options["graphs"],
    )
    progress(f"starting an engine of {options['slots']} slots")
    engine = Engine(config, models)
    try:
        engine.warm_up()
        bench = _Bench(engine, options, facts, progress)
        rows = list(bench.rows(models.dual_ar.weight_format))
    finally:
        engine.close()
    return Report("stream", facts, rows, COLUMNS, Plot("busy_slots", "first_audio_ms", ("voice",)))


@dataclass(eq=False)
class _Listened:
    """Hold what a listener met: seconds to the first audio, between chunks, and in all."""

    first_seconds: float
    gaps: list[float]
    total_seconds: float
    chunk_samples: list[int]


@dataclass(eq=False)
class _Bench:
    """Hold the engine and what all its measurements share."""

    engine: Engine
    options: Options
    facts: dict[str, Any]
    progress: Progress
    _number: int = 0
    _background: list[Future[SegmentAudio]] = field(default_factory=list)

    def rows(self, dtype: str) -> Iterator[dict[str, Any]]:
        """Measure each kind of voice beside each number of busy slots."""
        for busy in self.options["busy"]:
            for voice in VOICES:
                known = self._voice(0) if voice == "cached" else None
                self._listen(self._spec(voice, known))  # not counted: it makes the voice known
                listened = []
                for index in range(self.options["requests"]):
                    self._keep_busy(busy)
                    listened.append(self._listen(self._spec(voice, known)))
                    milliseconds = 1000 * listened[-1].first_seconds
                    self.progress(f"{voice} beside {busy}, {index + 1}: {milliseconds:.0f} ms")
                yield make_row(
                    self.facts, self._figures(voice, busy, dtype, listened), why_null=_WHY_NULL
                )
            self._stop_background()
        for callers in self.options["callers"]:
            if callers > 1:
                figures = self._many_callers(callers) | {"dtype": dtype}
                yield make_row(self.facts, figures, why_null=_WHY_NULL)

    def _many_callers(self, callers: int) -> dict[str, Any]:
        """Have callers send requests at once, each the next one when its last has ended."""
        known, requests = self._voice(0), self.options["requests"]
        self._listen(self._spec("cached", known))  # not counted: it makes the voice known
        turns = [[self._spec("cached", known) for _ in range(requests)] for _ in range(callers)]
        begun = time.perf_counter()
        with ThreadPoolExecutor(callers) as pool:
            runs = pool.map(lambda specs: [self._listen(spec) for spec in specs], turns)
            listened = [one for run in runs for one in run]
        wall = time.perf_counter() - begun
        self.progress(f"{callers} callers: {len(listened) / wall:.1f} requests a second")
        return self._figures("cached", 0, "", listened) | {
            "batch": callers,
            "callers": callers,
            "requests_per_second": len(listened) / wall,
        }

    def _listen(self, spec: RenderSpec) -> _Listened:
        """Stream one request to its end."""
        begun = time.perf_counter()
        times, sizes = [], []
        for samples in self.engine.stream(spec):
            times.append(time.perf_counter())
            sizes.append(len(samples))
        if not times:
            raise BenchFailedError("A stream ended without any audio.")
        gaps = [after - before for before, after in pairwise(times)]
        return _Listened(times[0] - begun, gaps, times[-1] - begun, sizes)

    def _spec(self, voice: str, known: Reference | None) -> RenderSpec:
        """Return a request whose text, and for a `new` voice whose clip, was not used before."""
        self._number += 1
        reference = self._voice(self._number) if voice == "new" else known
        words = f"{self._number} {_WORDS} " * self.options["text_letters"]
        text = words[: self.options["text_letters"]]
        sampling = Sampling(seed=self._number, max_frames=self.options["frames"])
        return RenderSpec(text, reference, sampling)

    def _voice(self, number: int) -> Reference:
        codec = self.engine._models.decoder.config
        size = min(codec.semantic_codebook_size, codec.residual_codebook_size)
        rng = np.random.default_rng([self.options["seed"], number])
        shape = (codec.num_codebooks, self.options["voice_frames"])
        return Reference("A voice.", rng.integers(0, size, shape, dtype=np.int16))

    def _keep_busy(self, busy: int) -> None:
        """Have as many other requests under way as slots shall be busy.

        Raises:
            EngineError: what was wrong with one of them: the slots were not busy then.
        """
        for future in self._background:
            if future.done():
                future.result()
        self._background = [future for future in self._background if not future.done()]
        while len(self._background) < busy:
            self._number += 1
            sampling = Sampling(seed=self._number, max_frames=BUSY_TIMES * self.options["frames"])
            spec = RenderSpec(f"{self._number} {_WORDS}", None, sampling)
            self._background.append(self.engine.submit(spec, priority=1))

    def _stop_background(self) -> None:
        for future in self._background:
            future.cancel()
        self._background.clear()

    def _figures(
        self, voice: str, busy: int, dtype: str, listened: Sequence[_Listened]
    ) -> dict[str, Any]:
        first = np.array([1000 * one.first_seconds for one in listened])
        hop = self.engine.sample_rate / self.engine.frame_rate
        frames = [sum(one.chunk_samples) / hop for one in listened]
        speed = float(
            np.median([n / one.total_seconds for n, one in zip(frames, listened, strict=True)])
        )
        gaps = [gap for one in listened for gap in one.gaps]
        return {
            "dtype": dtype,
            "batch": busy + 1,
            "cache_length": self.engine.describe()["max_positions"],
            "voice": voice,
            "busy_slots": busy,
            "callers": 1,
            "requests_per_second": None,
            "first_audio_ms": float(np.median(first)),
            "first_audio_ms_low": float(first.min()),
            "first_audio_ms_p95": float(np.percentile(first, 95)),
            "first_audio_ms_high": float(first.max()),
            "first_chunk_frames": listened[0].chunk_samples[0] / hop,
            "frames_per_second": speed,
            "real_time_factor": self.engine.frame_rate / speed,
            "longest_gap_ms": 1000 * max(gaps) if gaps else None,
        }
