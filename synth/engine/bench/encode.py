"""Measure audio to codes in float32 and bfloat16: the time, and the codes that differ."""

from __future__ import annotations

import math
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from synth.engine.bench.arguments import number, numbers
from synth.engine.bench.codec_source import (
    PRECISIONS,
    CodecSource,
    add_source_arguments,
    count_flops,
    source_name,
    weight_bytes,
)
from synth.engine.bench.machine import make_row, matmul_rate, run_facts
from synth.engine.bench.report import Options, Plot, Progress, Report
from synth.engine.bench.roofline import floor_seconds
from synth.engine.bench.windows import Series, run_windows, spread
from synth.engine.codec import CodecEncoder, resample_waveform
from synth.engine.codec.reference import mono_waveform
from synth.engine.engine_config import resolve_device
from synth.engine.errors import InvalidSpecError
from synth.engine.preset_shapes import preset

COLUMNS = (
    "dtype",
    "seconds",
    "milliseconds",
    "milliseconds_low",
    "milliseconds_high",
    "frames_per_second",
    "ratio_to_float32",
    "ratio_to_roofline",
    "semantic_codes_that_differ",
    "codes_that_differ",
)
_HARMONICS = 12


def add_arguments(parser: ArgumentParser) -> None:
    """Take the clips' lengths and how much is measured."""
    add_source_arguments(parser)
    parser.add_argument("--seconds", type=numbers(low=1), default=[10, 30], help="of the clips")
    parser.add_argument(
        "--clip", type=Path, help="a WAV or FLAC to encode, repeated to length; default: a tone"
    )
    parser.add_argument("--windows", type=number(low=1), default=5, help="the median counts")


def run(options: Options, progress: Progress) -> Report:
    """Encode clips of each length in both precisions.

    Raises:
        InvalidSpecError: the preset, the device or the clip is not to be had.
        CheckpointError: the checkpoint has no codec that can be used.
    """
    shape, device = preset(options["preset"]), resolve_device(options["device"])
    source = CodecSource(shape, options["checkpoint"], device, options["seed"])
    rate = shape.codec.sample_rate
    sound = _read(options["clip"], rate) if options["clip"] else _tone(rate, options["seed"])
    name = None if options["checkpoint"] else shape.name
    facts = run_facts(device, seed=options["seed"], preset=name)
    facts |= {
        "source": source_name(options),
        "clip": options["clip"].name if options["clip"] else "tones that glide, with noise",
        "windows": options["windows"],
    }
    rows = list(_rows(source, sound, options, facts, progress))
    plot = Plot("seconds", "milliseconds", ("dtype",), low="milliseconds_low")
    return Report("encode", facts, rows, COLUMNS, plot)


@dataclass(eq=False)
class _Case:
    """Encode one clip."""

    name: str
    encoder: CodecEncoder
    precision: str
    seconds: int
    waveform: Tensor

    def prepare(self) -> None:
        pass

    def work(self) -> int:
        return self.codes().shape[1]

    def codes(self) -> Tensor:
        """Return the clip's codes, int64 [K, T]."""
        return self.encoder.encode([self.waveform])[0]


def _rows(
    source: CodecSource, sound: Tensor, options: Options, facts: dict[str, Any], progress: Progress
) -> Iterator[dict[str, Any]]:
    cases = []
    for precision in PRECISIONS:
        progress(f"making a {precision} encoder")
        encoder = source.encoder(precision)
        for seconds in options["seconds"]:
            size = seconds * encoder.config.sample_rate
            waveform = sound.repeat(-(-size // sound.shape[0]))[:size].to(source.device)
            cases.append(_Case(f"{precision} {seconds} s", encoder, precision, seconds, waveform))
    series = run_windows(cases, windows=options["windows"], device=source.device, progress=progress)
    exact = {
        case.seconds: (case.codes(), measured)
        for case, measured in zip(cases, series, strict=True)
        if case.precision == "float32"
    }
    for case, measured in zip(cases, series, strict=True):
        codes, base = exact[case.seconds]
        differs = case.codes() != codes
        values = _figures(case, measured, facts, source.device) | {
            "ratio_to_float32": measured.ratio_to(base).median,
            "semantic_codes_that_differ": float(differs[0].double().mean()),
            "codes_that_differ": float(differs.double().mean()),
        }
        why = {"ratio_to_baseline": "the plain loop has no codec; see ratio_to_float32"}
        yield make_row(facts, values, why_null=why)


def _figures(
    case: _Case, measured: Series, facts: dict[str, Any], device: torch.device
) -> dict[str, Any]:
    frames = case.work()
    seconds = spread([frames / rate for rate in measured.rates])
    floor, bound = floor_seconds(
        weight_bytes(case.encoder),
        count_flops(case.codes),
        facts["copy_gigabytes_per_second"] * 1e9,
        matmul_rate(device, case.precision),
    )
    return {
        "dtype": case.precision,
        "batch": 1,
        "seconds": case.seconds,
        "frames_per_second": frames / seconds.median,
        "milliseconds": 1000 * seconds.median,
        "milliseconds_low": 1000 * seconds.low,
        "milliseconds_high": 1000 * seconds.high,
        "ratio_to_roofline": floor / seconds.median,
        "roofline_bound": bound,
    }


def _read(path: Path, rate: int) -> Tensor:
    """Return a sound file's samples at `rate` Hz, float32 [N]."""
    import soundfile

    try:
        samples, found = soundfile.read(path, dtype="float32", always_2d=True)
    except (OSError, RuntimeError) as error:
        raise InvalidSpecError(f"{path} is no sound file that can be read: {error}.") from error
    mono = mono_waveform(samples.T, torch.device("cpu"))
    return resample_waveform(mono, found, rate)[0]


def _tone(rate: int, seed: int) -> Tensor:
    """Return ten seconds of a voice-like sound: gliding harmonics that come and go, with noise."""
    time = torch.arange(10 * rate) / rate
    pitch = 120 + 40 * torch.sin(2 * math.pi * 0.7 * time)
    phase = 2 * math.pi * torch.cumsum(pitch / rate, 0)
    voiced = sum(torch.sin(k * phase) / k for k in range(1, _HARMONICS + 1))
    loudness = 0.5 + 0.5 * torch.sin(2 * math.pi * 2.3 * time)
    noise = torch.randn(time.shape[0], generator=torch.Generator().manual_seed(seed))
    return 0.1 * loudness * voiced + 0.01 * noise
