"""Say which kernels take a frame's time, by the device's own clock."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from lab.bench.models.codec_source import CodecSource
from lab.bench.models.presets import preset_dual_ar
from lab.bench.models.shapes import preset
from lab.bench.stepping import DecodeBatch
from lab.gpu_check.steps import Context, Found, Step

COLUMNS = ("of", "kernel", "calls", "microseconds", "share")
BATCHES, CONTEXT, FRAMES = (1, 8, 64), 300, 8
CODEC_STREAMS, CODEC_FRAMES = 16, 200
MOST_ROWS = 14  # of each table; the rest is one row
_NAME_LENGTH = 60


def profile_frames(context: Context) -> Found:
    """Profile replayed frames of 1, 8 and 64 streams, a frame's time each."""
    context.need_gpu("a profile of the device's kernels")
    model = preset_dual_ar(preset(context.preset), device=context.device, dtype="bfloat16")
    found = Found(columns=COLUMNS)
    rows: list[dict[str, object]] = []
    for batch in BATCHES:
        streams = DecodeBatch(
            model, batch=batch, context=CONTEXT, frames=FRAMES, seed=0, graphs=True
        )
        rows += kernel_rows(f"frame, {batch} streams", streams.decode, FRAMES)
        streams.rewind()
    found.rows = rows
    return found


def profile_codec(context: Context) -> Found:
    """Profile the codec's decoding of several whole segments, as it is served."""
    context.need_gpu("a profile of the device's kernels")
    source = CodecSource(preset(context.preset), None, context.device, 0)
    decoder = source.decoder("tf32")
    config, generator = decoder.config, torch.Generator().manual_seed(0)
    size = min(config.semantic_codebook_size, config.residual_codebook_size)
    codes = [
        torch.randint(size, (config.num_codebooks, CODEC_FRAMES), generator=generator).to(
            context.device
        )
        for _ in range(CODEC_STREAMS)
    ]
    decoder.decode(codes)
    name = f"codec, {CODEC_STREAMS} x {CODEC_FRAMES} frames"
    return Found(rows=kernel_rows(name, lambda: decoder.decode(codes), 1), columns=COLUMNS)


def kernel_rows(name: str, work: Callable[[], object], runs: int) -> list[dict[str, object]]:
    """Return the kernels that take most of `work`'s time on the device, for one of its runs."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        work()
        torch.cuda.synchronize()
    calls: defaultdict[str, int] = defaultdict(int)
    micros: defaultdict[str, float] = defaultdict(float)
    for event in profiler.events() or ():
        if event.device_type.name != "CUDA":
            continue
        kernel = _short_name(event.name)
        calls[kernel] += 1
        micros[kernel] += event.time_range.elapsed_us()
    total = sum(micros.values())
    names = sorted(micros, key=lambda kernel: -micros[kernel])
    groups = [[kernel] for kernel in names[:MOST_ROWS]]
    groups += [names[MOST_ROWS:]] if names[MOST_ROWS:] else []
    return [
        {
            "of": name,
            "kernel": group[0] if len(group) == 1 else f"{len(group)} others",
            "calls": sum(calls[kernel] for kernel in group) / runs,
            "microseconds": sum(micros[kernel] for kernel in group) / runs,
            "share": sum(micros[kernel] for kernel in group) / total,
        }
        for group in groups
    ]


def _short_name(kernel: str) -> str:
    """Return a kernel's name without its types, which fill lines and tell nothing apart."""
    return re.sub(r"<.*", "", kernel.removeprefix("void "))[:_NAME_LENGTH]


STEPS = (Step("frame-profile", 25, profile_frames), Step("codec-profile", 15, profile_codec))
