"""Measure the codec, streams, a start, and segments from requests to audio, with no database."""

from __future__ import annotations

from collections.abc import Sequence

from lab.golden.models import has_library
from lab.gpu_check.benches import Row, found_of, run_bench, value_of
from lab.gpu_check.steps import Context, Found, NotMeasuredError, Step, has_fp8

SPOKEN_FRAMES = "96"  # 4.5 s of audio, about a sentence of the test set Seed-TTS in English
CODEC_DTYPE = {"cuda": "tf32", "cpu": "float32"}  # of what is served


def measure_codec(context: Context) -> Found:
    """Measure codes to audio in every precision, with the error of each against float32."""
    if context.on_gpu:
        sizes: Sequence[str] = ("--frames", "8,200", "--batch", "1,16", "--windows", "3")
        report = run_bench(context, "codec", *sizes, "--precision", "float32,tf32,bfloat16")
        plain = ("--precision", "tf32", "--kernels", "off", "--graphs", "off")
        others = run_bench(context, "codec", *sizes, *plain).rows
    else:
        report = run_bench(context, "codec", "--frames", "8", "--batch", "1,2", "--windows", "2")
        others = ()
    served = CODEC_DTYPE[context.device.type]
    whole = [row for row in report.rows if not row["streamed"] and row["dtype"] == served]
    rates = [1 / row["real_time_factor"] for row in whole]  # audio seconds a second
    found = found_of(report, codec_rate=max(rates, default=None))
    found.rows = [*report.rows, *others]
    return found


def measure_encode(context: Context) -> Found:
    """Measure reference clips of 10 and 30 s."""
    seconds = ("--seconds", "10,30") if context.on_gpu else ("--seconds", "1", "--windows", "2")
    report = run_bench(context, "encode", *seconds)
    return found_of(
        report,
        encode_10_ms=value_of(report.rows, "milliseconds", dtype="float32", seconds=10),
        encode_30_ms=value_of(report.rows, "milliseconds", dtype="float32", seconds=30),
    )


def measure_stream(context: Context) -> Found:
    """Measure the time to the first audio, idle and, on a GPU, of 32 and 64 callers at once."""
    codec = ("--codec-dtype", CODEC_DTYPE[context.device.type])
    if context.on_gpu:
        sizes: Sequence[str] = ("--requests", "6", "--frames", SPOKEN_FRAMES, "--slots", "64")
        sizes = (*sizes, "--callers", "1,32,64")
    else:
        sizes = ("--requests", "2", "--frames", "8", "--slots", "2", "--voice-frames", "20")
        sizes = (*sizes, "--callers", "1,2")
    rows = run_bench(context, "stream", *codec, *sizes)

    def of(key: str, callers: int) -> float | None:
        return value_of(rows.rows, key, voice="cached", busy_slots=0, callers=callers)

    return found_of(
        rows,
        first_audio_ms=of("first_audio_ms", 1),
        first_audio_32_ms=of("first_audio_ms", 32),
        first_audio_64_ms=of("first_audio_ms", 64),
        requests_per_second=of("requests_per_second", 32),
    )


def measure_segments(context: Context) -> Found:
    """Render many segments of one stored voice through all slots; on a GPU in 8 bits too."""
    codec = ("--codec-dtype", CODEC_DTYPE[context.device.type])
    if not context.on_gpu:
        sizes = ("--slots", "2", "--segments", "6", "--frames", "6", "--voice-frames", "20")
        report = run_bench(context, "segments", *codec, *sizes)
        return found_of(report, tokens_per_second=report.rows[0]["acoustic_tokens_per_second"])
    sizes = ("--slots", "64", "--segments", "256", "--frames", "250", "--max-positions", "2048")
    reports = [
        run_bench(context, "segments", *codec, *sizes, "--dtype", dtype)
        for dtype in ("bfloat16", "int8", *["fp8"] * has_fp8(context.device))
    ]
    rows: list[Row] = [report.rows[0] for report in reports]
    rates = [row["acoustic_tokens_per_second"] for row in rows]
    found = found_of(reports[0], tokens_per_second=rates[0], tokens_per_second_int8=rates[1])
    found.rows = rows
    return found


def measure_cold(context: Context) -> Found:
    """Measure each part of a process's start, up to the first audio."""
    if not has_library():
        raise NotMeasuredError("a checkpoint's tokenizer.json needs the package tokenizers")
    codec = ("--codec-dtype", CODEC_DTYPE[context.device.type])
    if context.on_gpu:
        sizes: Sequence[str] = ("--slots", "64", "--max-positions", "2048", "--runs", "1")
    else:
        sizes = ("--slots", "2", "--max-positions", "256", "--runs", "1", "--frames", "4")
    report = run_bench(context, "cold", *codec, *sizes)
    return found_of(report, start_seconds=value_of(report.rows, "seconds", part="all"))


STEPS = (
    Step("codec", 90, measure_codec),
    Step("encode", 45, measure_encode),
    Step("stream", 60, measure_stream),
    Step("segments", 60, measure_segments),
    Step("cold", 80, measure_cold),
)
