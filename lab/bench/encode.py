"""Measure audio to codes by precision: the time, the latents' error, the codes that differ."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lab.bench.machine import Series, make_row, matmul_rate, run_facts, run_windows, spread
from lab.bench.models.codec_source import CodecSource, count_flops, source_name, weight_bytes
from lab.bench.models.shapes import preset
from lab.bench.report import Options, Plot, Progress, Report
from lab.bench.roofline import floor_seconds
from synth.engine.codec.config import PRECISIONS
from synth.engine.codec.halves import CodecEncoder, encode_reference, mono_waveform
from synth.engine.codec.load import uses_kernels
from synth.engine.codec.resample import resample_waveform
from synth.engine.errors import InvalidSpecError
from synth.engine.loading.engine_config import resolve_device

COLUMNS = (
    "dtype",
    "seconds",
    "milliseconds",
    "milliseconds_low",
    "milliseconds_high",
    "frames_per_second",
    "milliseconds_from_48_khz",
    "kernels",
    "ratio_to_float32",
    "ratio_to_roofline",
    "error_db",
    "semantic_codes_that_differ",
    "codes_that_differ",
)
_HARMONICS = 12
_CLIP_RATE = 48_000  # of most clips, so that they are resampled


def run(options: Options, progress: Progress) -> Report:
    """Encode clips of each length in every precision.

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
    clip: npt.NDArray[np.float32] | None = None  # the same at 48 kHz, on the host

    def prepare(self) -> None:
        pass

    def work(self) -> int:
        if self.clip is None:
            return self.codes().shape[1]
        # What an engine does: to the device, to the codec's rate, to codes, and these back.
        return len(encode_reference(self.encoder, self.clip, _CLIP_RATE).T)

    def codes(self, **limit: int) -> Tensor:
        """Return the clip's codes, int64 [K, T]."""
        return self.encoder.encode(self.waveform, **limit)

    def latents(self) -> Tensor:
        """Return what the codes are chosen for, of one pass over the whole clip, float64."""
        found: list[Tensor] = []
        hook = self.encoder.quantizer.pre_module.register_forward_hook(
            lambda _module, _args, output: found.append(output.double())
        )
        with hook:
            self.codes(piece_frames=self.waveform.shape[0])
        return found[0]


def _precisions(options: Options, device: torch.device) -> list[str]:
    """Return the precisions to measure, float32 first."""
    usual = PRECISIONS if device.type == "cuda" else ("float32", "bfloat16")
    return list(dict.fromkeys(("float32", *(options["precision"] or usual))))


def _rows(
    source: CodecSource, sound: Tensor, options: Options, facts: dict[str, Any], progress: Progress
) -> Iterator[dict[str, Any]]:
    cases = []
    for precision in _precisions(options, source.device):
        progress(f"making a {precision} encoder")
        encoder = source.encoder(precision, kernels=options["kernels"])
        rate = encoder.config.sample_rate
        for seconds in options["seconds"]:
            waveform = sound.repeat(-(-seconds * rate // sound.shape[0]))[: seconds * rate]
            clip = resample_waveform(waveform, rate, _CLIP_RATE)[0].numpy()
            given = (encoder, precision, seconds, waveform.to(source.device))
            cases.append(_Case(f"{precision} {seconds} s", *given))
            cases.append(_Case(f"{precision} {seconds} s from 48 kHz", *given, clip=clip))
    series = run_windows(cases, windows=options["windows"], device=source.device, progress=progress)
    measured_of = {
        (c.precision, c.seconds, c.clip is None): s for c, s in zip(cases, series, strict=True)
    }
    exact = source.encoder("float32", kernels="off")
    for case in cases:
        if case.clip is not None:
            continue
        measured = measured_of[case.precision, case.seconds, True]
        whole = measured_of[case.precision, case.seconds, False]
        base = measured_of["float32", case.seconds, True]
        reference = replace(case, encoder=exact)
        differs = case.codes() != reference.codes()
        values = _figures(case, measured, facts, source.device) | {
            "milliseconds_from_48_khz": 1000 * case.work() / whole.median(),
            "kernels": uses_kernels(case.encoder),
            "ratio_to_float32": measured.ratio_to(base).median,
            "error_db": _error_db(reference.latents(), case.latents()),
            "semantic_codes_that_differ": float(differs[0].double().mean()),
            "codes_that_differ": float(differs.double().mean()),
        }
        why = {"ratio_to_baseline": "the plain loop has no codec; see ratio_to_float32"}
        yield make_row(facts, values, why_null=why)


def _error_db(exact: Tensor, found: Tensor) -> float | None:
    """Return the power of the difference against that of `exact`; None where there is none."""
    power = (found - exact).square().sum()
    return None if power == 0 else float(10 * torch.log10(power / exact.square().sum()))


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
        raise InvalidSpecError(f"{path} is not a readable sound file: {error}.") from error
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
