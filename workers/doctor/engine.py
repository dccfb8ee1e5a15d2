"""Look at what only the engine needs: torch, the device, the resampler, the checkpoint.

Importing this module imports torch; the command does that inside the check, so that a machine
without it still gets every other finding.
"""

from __future__ import annotations

import os
import shutil
from importlib.metadata import version
from pathlib import Path

import torch
from django.conf import settings

from synth.engine.codec.codec_file import open_codec
from synth.engine.codec.resample import chosen_resampler, torchaudio_problem
from synth.engine.engine_config import resampler_choice, resolve_device, resolve_dtype
from synth.engine.errors import EngineError
from synth.engine.weights import check_dual_ar
from ttsweb.card import CardError, read_card
from workers.doctor.findings import Check, Finding

CLIP_RATE, CODEC_RATE = 48_000, 44_100  # the pair of rates that most clips need


def look_at_torch() -> Finding:
    """Say which build of PyTorch is installed, and whether it can use this machine's GPU."""
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    text = f"{torch.__version__} ({build})"
    if not _has_nvidia_device():
        return Finding("ok", "torch", text)
    if torch.version.cuda is None:
        return Finding(
            "warn", "torch", f"{text}, but there is an NVIDIA device", "TTS_TORCH=cuda ./tts doctor"
        )
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]  # torch has no types here
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        return Finding("fail", "torch", f"{text}: {reason}", "update the NVIDIA driver")
    return Finding("ok", "torch", text)


def look_at_device() -> Finding:
    """Say what renders, in which numbers, and with how much memory."""
    try:
        device = resolve_device(settings.DEVICE)
        dtype = str(resolve_dtype(settings.DTYPE, device)).removeprefix("torch.")
    except EngineError as error:
        return Finding("fail", "device", str(error), "set TTS_DEVICE")
    if device.type == "cuda":
        found = torch.cuda.get_device_properties(device)
        free, total = torch.cuda.mem_get_info(device)
        memory = f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
        return Finding("ok", "device", f"{device} {found.name}, {memory}, {dtype}")
    memory = f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"
    simd = torch.backends.cpu.get_cpu_capability()
    threads = settings.TORCH_THREADS or torch.get_num_threads()
    return Finding("ok", "device", f"cpu {simd}, {threads} threads, {memory} of memory, {dtype}")


def look_at_resampler() -> Finding:
    """Say which resampler would run, and why not the other one."""
    try:
        name = chosen_resampler(resampler_choice(settings.RESAMPLER), CLIP_RATE, CODEC_RATE)
    except EngineError as error:
        return Finding("fail", "resampler", str(error), "TTS_RESAMPLER=builtin")
    if settings.RESAMPLER != "auto":
        return Finding("ok", "resampler", f"{name} (TTS_RESAMPLER={settings.RESAMPLER})")
    problem = torchaudio_problem()
    why = f"torchaudio {version('torchaudio')} imports" if problem is None else problem
    return Finding("ok", "resampler", f"{name} ({why})")


def look_at_checkpoint() -> Finding:
    """Say which model speaks, and whether its files are complete; only headers are read."""
    name, folder = "checkpoint", settings.CHECKPOINT
    try:
        card = read_card(folder)
        parameters = check_dual_ar(folder)
        codec = open_codec(folder)
    except (EngineError, CardError) as error:
        remedy = "TTS_CHECKPOINT must name a folder with all files of one checkpoint"
        return Finding("fail", name, str(error), remedy)
    text = (
        f"{card.name} in {folder}: {parameters / 1e6:.1f} M parameters, codec {codec.path.name}, "
        f"licence {card.licence}"
    )
    if not card.speaks:
        return Finding("warn", name, f"{text}; it makes noise, no speech", "set TTS_CHECKPOINT")
    return Finding("ok", name, text)


def _has_nvidia_device() -> bool:
    return shutil.which("nvidia-smi") is not None or Path("/proc/driver/nvidia").exists()


CHECKS: tuple[tuple[str, Check], ...] = (
    ("torch", look_at_torch),
    ("device", look_at_device),
    ("resampler", look_at_resampler),
    ("checkpoint", look_at_checkpoint),
)
