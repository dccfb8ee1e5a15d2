"""Measure how much memory loading takes at its peak: each codec half and the transformers apart.

`python -m lab.bench.load_memory CHECKPOINT` loads each in a process of its own and watches it
from outside. What counts on a CPU is anonymous memory, the process's own: pages of the mapped file
are in its resident size too, but the kernel takes them back whenever memory is short, so they keep
nobody out. The most that was resident with them is reported beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO

import torch
from torch import nn

from synth.engine.codec.load import decoding_precision, load_decoder, load_encoder
from synth.engine.errors import EngineError
from synth.engine.loading.engine_config import EngineConfig, resolve_device
from synth.engine.loading.loaded_models import load_transformers
from synth.engine.loading.memory import held_bytes

WATCH_SECONDS = 0.0005
PARTS = ("transformers", "encoder", "decoder")


@dataclass(frozen=True, slots=True)
class LoadMemory:
    """Hold one load's bytes above what the process had before it; `weights` are what it left.

    `peak_anonymous` is the process's own memory and `peak_resident` that with mapped files;
    `peak_device` is the allocator's on CUDA and None on a CPU.
    """

    part: str
    device: str
    weights: int
    peak_anonymous: int
    left_anonymous: int
    peak_resident: int
    peak_device: int | None
    seconds: float

    @property
    def ratio(self) -> float:
        """Return the peak where the weights went, as a multiple of their bytes."""
        peak = self.peak_anonymous if self.peak_device is None else self.peak_device
        return peak / self.weights


def measure_load(part: str, config: EngineConfig) -> LoadMemory:
    """Load one part of a checkpoint in a new process and return what that took.

    Args:
        part: transformers, encoder or decoder.

    Raises:
        EngineError: it cannot be loaded; the text is that of the load's own error.
    """
    command = [
        sys.executable, "-m", "lab.bench.load_memory", str(config.checkpoint), "--part", part,
        "--device", config.device, "--dtype", config.dtype,
        "--codec-encode-dtype", config.codec_encode_dtype,
        "--codec-decode-dtype", config.codec_decode_dtype, "--threads", str(config.threads),
    ]  # fmt: skip
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with child:
        if child.stdin is None or child.stdout is None:
            raise RuntimeError("a process was started without pipes")
        if child.stdout.readline() != "ready\n":
            raise EngineError(f"The process that should load the {part} did not start.")
        before = _resident(child.pid)
        child.stdin.write("\n")
        child.stdin.flush()
        peak = _watch(child.pid, child.stdout)
        answer = json.loads(child.stdout.readline() or '{"error": "the process died"}')
        after = _resident(child.pid)
        child.stdin.close()
    if "error" in answer:
        raise EngineError(f"Loading the {part} failed: {answer['error']}")
    return LoadMemory(
        part=part,
        device=answer["device"],
        weights=answer["weights"],
        peak_anonymous=max(peak[0], after[0]) - before[0],
        left_anonymous=after[0] - before[0],
        peak_resident=max(peak[1], after[1]) - before[1],
        peak_device=answer["peak_device"],
        seconds=answer["seconds"],
    )


def child_main(part: str, config: EngineConfig) -> None:
    """Load one part when told to by a line on standard input, and answer with a line of JSON."""
    if config.threads:
        torch.set_num_threads(config.threads)
    torch.ones(64, 64) @ torch.ones(64, 64)  # libraries set themselves up here, not in the load
    _say("ready")
    sys.stdin.readline()
    started = time.perf_counter()
    try:
        device = resolve_device(config.device)
        loaded = _LOADERS[part](config, device)
    except EngineError as error:
        _say(json.dumps({"error": str(error)}))
        return
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    answer = {
        "device": str(device),
        "weights": held_bytes(loaded),
        "peak_device": peak,
        "seconds": time.perf_counter() - started,
    }
    _say(json.dumps(answer))
    sys.stdin.readline()  # the parent looks once more at what is held


def table(rows: list[LoadMemory]) -> str:
    """Return one line for each part."""
    lines = [
        f"{'part':<13}{'device':<8}{'weights':>10}{'peak':>10}{'ratio':>7}{'mapped too':>12}"
        f"{'seconds':>9}"
    ]
    for row in rows:
        peak = row.peak_anonymous if row.peak_device is None else row.peak_device
        lines.append(
            f"{row.part:<13}{row.device:<8}{_megabytes(row.weights):>10}{_megabytes(peak):>10}"
            f"{row.ratio:>7.2f}{_megabytes(row.peak_resident):>12}{row.seconds:>9.2f}"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Measure every part, or be the process that loads one; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--codec-encode-dtype", default="float32")
    parser.add_argument("--codec-decode-dtype", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    config = EngineConfig(
        checkpoint=given.checkpoint,
        device=given.device,
        dtype=given.dtype,
        codec_encode_dtype=given.codec_encode_dtype,
        codec_decode_dtype=given.codec_decode_dtype,
        threads=given.threads,
    )
    if given.part:
        child_main(given.part, config)
        return 0
    try:
        rows = [measure_load(part, config) for part in PARTS]
    except EngineError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    _say(json.dumps([asdict(row) for row in rows]) if given.json else table(rows))
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _watch(pid: int, output: IO[str]) -> tuple[int, int]:
    """Return the most anonymous and resident bytes that a process had until it wrote something."""
    anonymous = resident = 0
    while True:
        now = _resident(pid)
        anonymous, resident = max(anonymous, now[0]), max(resident, now[1])
        if select.select([output], [], [], WATCH_SECONDS)[0]:
            return anonymous, resident


def _resident(pid: int) -> tuple[int, int]:
    """Return a process's anonymous and whole resident memory in bytes; zeros when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    except OSError:
        return 0, 0
    pages, shared = (int(fields[1]), int(fields[2])) if len(fields) > 2 else (0, 0)
    size = os.sysconf("SC_PAGE_SIZE")
    return (pages - shared) * size, pages * size


def _megabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f} MB"


def _load_transformers(config: EngineConfig, device: torch.device) -> nn.Module:
    return load_transformers(config, device)[0]


def _load_encoder(config: EngineConfig, device: torch.device) -> nn.Module:
    return load_encoder(config.checkpoint, device, config.codec_encode_dtype)


def _load_decoder(config: EngineConfig, device: torch.device) -> nn.Module:
    precision = decoding_precision(config.codec_decode_dtype, device)
    return load_decoder(config.checkpoint, device, precision)


_LOADERS: Mapping[str, Callable[[EngineConfig, torch.device], nn.Module]] = MappingProxyType(
    {"transformers": _load_transformers, "encoder": _load_encoder, "decoder": _load_decoder}
)


if __name__ == "__main__":
    sys.exit(main())
