"""Measure codes to audio: whole segments and streams, by length, batch and precision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lab.bench.machine import Series, make_row, matmul_rate, run_facts, run_windows, spread
from lab.bench.models.codec_source import CodecSource, count_flops, source_name, weight_bytes
from lab.bench.models.shapes import preset
from lab.bench.report import Options, Plot, Progress, Report
from lab.bench.roofline import floor_seconds
from synth.engine.codec.halves import CodecDecoder
from synth.engine.codec.load import uses_kernels
from synth.engine.codec.streams import (
    ChunkSchedule,
    CodecStream,
    CudaCapture,
    StreamGraphs,
    decode_streams,
)
from synth.engine.device import DeviceLane
from synth.engine.loading.engine_config import resolve_device

COLUMNS = (
    "dtype",
    "frames",
    "batch",
    "streamed",
    "kernels",
    "graphs",
    "frames_per_second",
    "frames_per_second_low",
    "frames_per_second_high",
    "real_time_factor",
    "ratio_to_one_shot",
    "ratio_to_roofline",
    "error_db",
    "error_max",
)
_NO_BASELINE = "the plain loop has no codec; ratio_to_one_shot compares streams with whole segments"


def run(options: Options, progress: Progress) -> Report:
    """Measure every combination; a stream's chunks grow as the engine's do.

    Raises:
        InvalidSpecError: the preset or the device is not to be had.
        CheckpointError: the checkpoint has no codec that can be used.
    """
    shape, device = preset(options["preset"]), resolve_device(options["device"])
    source = CodecSource(shape, options["checkpoint"], device, options["seed"])
    name = None if options["checkpoint"] else shape.name
    facts = run_facts(device, seed=options["seed"], preset=name)
    schedule = ChunkSchedule()
    facts |= {
        "source": source_name(options),
        "windows": options["windows"],
        "chunks": f"{schedule.first} frames, doubling up to {schedule.largest}",
    }
    rows: list[dict[str, Any]] = []
    with DeviceLane(device, is_urgent=False).entered():  # graphs are not for the first stream
        for precision in options["precision"]:
            progress(f"making a {precision} decoder")
            rows += _rows(source, precision, options, facts, progress)
    plot = Plot(
        "frames",
        "frames_per_second",
        ("dtype", "batch", "streamed"),
        low="frames_per_second_low",
        high="frames_per_second_high",
    )
    return Report("codec", facts, rows, COLUMNS, plot)


@dataclass(eq=False)
class _Case:
    """Decode a batch of equally long segments, whole or chunk by chunk."""

    name: str
    decoder: CodecDecoder
    codes: list[Tensor]
    streamed: bool
    graphs: StreamGraphs | None = None

    @property
    def frames(self) -> int:
        return self.codes[0].shape[1]

    def prepare(self) -> None:
        pass

    def work(self) -> int:
        self.decode()
        return len(self.codes) * self.frames

    def decode(self, *, eagerly: bool = False) -> list[Tensor]:
        """Return each segment's samples."""
        if not self.streamed:
            return self.decoder.decode(self.codes)
        graphs = None if eagerly else self.graphs
        streams = [CodecStream(self.decoder) for _ in self.codes]
        pieces, start = [], 0
        for size in ChunkSchedule().split(self.frames):
            chunk = [codes[:, start : start + size] for codes in self.codes]
            pieces.append(decode_streams(streams, chunk, graphs=graphs))
            start += size
        return [torch.cat(parts) for parts in zip(*pieces, strict=True)]


def _rows(
    source: CodecSource, precision: str, options: Options, facts: dict[str, Any], progress: Progress
) -> Iterator[dict[str, Any]]:
    decoder = source.decoder(precision, kernels=options["kernels"])
    is_exact = precision == "float32" and not uses_kernels(decoder)
    exact = decoder if is_exact else source.decoder("float32", kernels="off")
    cases = list(_cases(decoder, precision, options, _graphs(decoder, options, progress)))
    series = run_windows(cases, windows=options["windows"], device=source.device, progress=progress)
    whole = {
        (case.frames, len(case.codes)): measured
        for case, measured in zip(cases, series, strict=True)
        if not case.streamed
    }
    for case, measured in zip(cases, series, strict=True):
        row = _figures(case, exact, measured, precision, facts, source.device)
        one_shot = whole.get((case.frames, len(case.codes)))
        row["ratio_to_one_shot"] = measured.ratio_to(one_shot).median if one_shot else None
        row |= _error(exact, case)
        yield make_row(facts, row, why_null={"ratio_to_baseline": _NO_BASELINE})


def _graphs(decoder: CodecDecoder, options: Options, progress: Progress) -> StreamGraphs | None:
    if options["graphs"] == "off" or decoder.device.type != "cuda":
        return None
    graphs = StreamGraphs(decoder, ChunkSchedule().distinct_sizes())
    graphs.record(CudaCapture(decoder.device))
    progress(f"{len(graphs.shapes)} graphs recorded in {graphs.seconds:.1f} s")
    return graphs


def _cases(
    decoder: CodecDecoder, precision: str, options: Options, graphs: StreamGraphs | None
) -> Iterator[_Case]:
    for frames in options["frames"]:
        for batch in options["batch"]:
            codes = [_random_codes(decoder, frames, options["seed"] + i) for i in range(batch)]
            for flag in options["streamed"]:
                way = "streamed" if flag == "1" else "whole"
                name = f"{precision} {batch} x {frames} frames {way}"
                yield _Case(name, decoder, codes, flag == "1", graphs)


def _random_codes(decoder: CodecDecoder, frames: int, seed: int) -> Tensor:
    """Return codes int64 [K, T] on the device that every codebook has."""
    generator = torch.Generator().manual_seed(seed)
    config = decoder.config
    size = min(config.semantic_codebook_size, config.residual_codebook_size)
    codes = torch.randint(size, (config.num_codebooks, frames), generator=generator)
    return codes.to(decoder.device)


def _figures(
    case: _Case,
    exact: CodecDecoder,
    measured: Series,
    precision: str,
    facts: dict[str, Any],
    device: torch.device,
) -> dict[str, Any]:
    speed, config = spread(measured.rates), case.decoder.config
    # Neither a replay nor code of our own shows its operations: they are those of PyTorch's layers.
    has_own = case.decoder.has_own_layers
    plain = replace(case, decoder=exact) if has_own else case
    flops = count_flops(partial(plain.decode, eagerly=True))
    passes = len(list(ChunkSchedule().split(case.frames))) if case.streamed else 1
    floor, bound = floor_seconds(
        passes * weight_bytes(case.decoder),
        flops,
        facts["copy_gigabytes_per_second"] * 1e9,
        # Numbers of ten bits are float16 in our own kernel.
        matmul_rate(device, "float16" if precision == "tf32" and has_own else precision),
    )
    frames = case.frames * len(case.codes)
    return {
        "dtype": precision,
        "batch": len(case.codes),
        "frames": case.frames,
        "streamed": case.streamed,
        "kernels": uses_kernels(case.decoder),
        "graphs": case.streamed and case.graphs is not None,
        "frames_per_second": speed.median,
        "frames_per_second_low": speed.low,
        "frames_per_second_high": speed.high,
        "milliseconds": 1000 * frames / speed.median,
        "real_time_factor": config.sample_rate / config.hop_length / speed.median,
        "gigaflops_per_frame": flops / frames / 1e9,
        "ratio_to_roofline": speed.median * floor / frames,
        "roofline_bound": bound,
    }


def _error(exact: CodecDecoder, case: _Case) -> dict[str, float | None]:
    """Return how far a case's samples are from those of PyTorch in float32, decoded whole.

    `error_db` is the error's power against the signal's, None where there is none; `error_max` the
    largest difference of a sample.
    """
    wanted, found = torch.cat(exact.decode(case.codes)), torch.cat(case.decode())
    difference = (found - wanted).double()
    power = difference.square().mean()
    ratio = 10 * torch.log10(power / wanted.double().square().mean())
    return {
        "error_db": None if power == 0 else float(ratio),
        "error_max": float(difference.abs().max()),
    }
