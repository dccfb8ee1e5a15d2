"""Hold the codec's kernels, graphs and coarser numbers to plain float32, at its own size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lab.bench.encode import _tone
from lab.bench.machine import synchronize
from lab.bench.models.codec_source import CodecSource
from lab.bench.models.shapes import preset
from lab.gpu_check.steps import Context, Found, Step
from synth.engine.codec.halves import CodecDecoder
from synth.engine.codec.streams import (
    Capture,
    ChunkSchedule,
    CodecStream,
    CudaCapture,
    StreamGraphs,
    decode_streams,
)
from synth.engine.device import DeviceLane
from synth.engine.errors import InvalidSpecError

COLUMNS = ("what", "snr_db", "max_abs", "least_db", "passed")
STREAMS, FRAMES = 2, 40
# What was asked for in float32 is float32, whoever computes it; the others are told apart from a
# wrong result by far: rounding to ten bits gives some 55 dB, to bfloat16 some 30.
LEAST_DB = {"float32": 80.0, "tf32": 35.0, "bfloat16": 20.0}
MOST_CODES_THAT_DIFFER = 0.02  # of a clip's, in float32: neighbours that lie equally near


def check_codec(context: Context) -> Found:
    """Compare decoders with kernels, in coarser numbers, in chunks and replayed; and encoders."""
    context.need_gpu("a compiled kernel or a graph of the codec")
    source = CodecSource(preset(context.preset), None, context.device, 0)
    exact = source.decoder("float32", kernels="off")
    codes = _codes(exact)
    errors: list[tuple[str, str, DecodeError]] = []
    for precision in LEAST_DB:
        decoder = source.decoder(precision)
        errors.append((f"{precision} with kernels", precision, decode_error(exact, decoder, codes)))
        errors += compare_streams(decoder, codes, precision, CudaCapture(context.device))
    rows = [
        {
            "what": what,
            "snr_db": error.snr_db,
            "max_abs": error.max_abs,
            "least_db": LEAST_DB[bound],
            "passed": error.snr_db >= LEAST_DB[bound],
        }
        for what, bound, error in errors
    ]
    found = Found(rows=rows, columns=COLUMNS)
    found.mismatches = [f"{r['what']}: {r['snr_db']:.0f} dB" for r in rows if not r["passed"]]
    differ = _codes_that_differ(source)
    found.notes.append(f"codes of a clip that kernels change, in float32: {100 * differ:.2f} %")
    if differ > MOST_CODES_THAT_DIFFER:
        found.mismatches.append(f"kernels change {100 * differ:.1f} % of a clip's codes")
    return found


def compare_streams(
    decoder: CodecDecoder, codes: Sequence[Tensor], precision: str, capture: Capture
) -> list[tuple[str, str, DecodeError]]:
    """Compare chunks with the whole, and replayed chunks with eager ones."""
    whole = torch.cat(decoder.decode(codes))
    with DeviceLane(decoder.device, is_urgent=False).entered():
        graphs = StreamGraphs(decoder, ChunkSchedule().distinct_sizes())
        graphs.record(capture)
        eager, replayed = (_in_chunks(decoder, codes, each) for each in (None, graphs))
        synchronize(decoder.device)
    return [
        (f"{precision} in chunks against whole", precision, _error(whole, eager)),
        (f"{precision} chunks replayed against eager", precision, _error(eager, replayed)),
    ]


def _in_chunks(
    decoder: CodecDecoder, codes: Sequence[Tensor], graphs: StreamGraphs | None
) -> Tensor:
    streams = [CodecStream(decoder) for _ in codes]
    pieces, start = [], 0
    for size in ChunkSchedule().split(codes[0].shape[1]):
        chunk = [matrix[:, start : start + size] for matrix in codes]
        pieces.append([each.clone() for each in decode_streams(streams, chunk, graphs=graphs)])
        start += size
    return torch.cat([torch.cat(parts) for parts in zip(*pieces, strict=True)])


def _error(expected: Tensor, found: Tensor) -> DecodeError:
    wanted, difference = expected.double(), found.double() - expected.double()
    noise, signal = float(difference.square().sum()), float(wanted.square().sum())
    snr = 10 * math.log10(signal / noise) if noise else math.inf
    return DecodeError(snr, float(difference.abs().max()))


def _codes(decoder: CodecDecoder) -> list[Tensor]:
    config, generator = decoder.config, torch.Generator().manual_seed(0)
    size = min(config.semantic_codebook_size, config.residual_codebook_size)
    shape = (config.num_codebooks, FRAMES)
    drawn = [torch.randint(size, shape, generator=generator) for _ in range(STREAMS)]
    return [codes.to(decoder.device) for codes in drawn]


def _codes_that_differ(source: CodecSource) -> float:
    """Return the share of a ten-second clip's codes that kernels change in float32."""
    clip = _tone(source.shape.codec.sample_rate, 0).to(source.device)
    plain, fused = (
        source.encoder("float32", kernels=choice).encode(clip) for choice in ("off", "auto")
    )
    return float((plain != fused).double().mean())


STEPS = (Step("codec", 60, check_codec),)


@dataclass(frozen=True, slots=True)
class DecodeError:
    """Hold how far one decoder's audio is from another's.

    `snr_db` is the power of the audio over that of the difference, infinite where there is none;
    `max_abs` the largest difference of a sample, where full scale is 1.
    """

    snr_db: float
    max_abs: float


def decode_error(exact: CodecDecoder, other: CodecDecoder, codes: Sequence[Tensor]) -> DecodeError:
    """Measure `other` against `exact` over the audio of all code matrices together.

    Raises:
        InvalidSpecError: there are no frames, or codes are refused by a decoder.
    """
    if not sum(matrix.shape[-1] for matrix in codes):
        raise InvalidSpecError("An error is measured over at least one frame of codes.")
    expected = torch.cat(exact.decode(codes)).double()
    difference = torch.cat(other.decode(codes)).to(expected.device).double() - expected
    signal, noise = expected.square().sum().item(), difference.square().sum().item()
    ratio = signal / noise if noise else math.inf
    snr_db = 10 * math.log10(ratio) if ratio else -math.inf
    return DecodeError(snr_db, difference.abs().max().item())
