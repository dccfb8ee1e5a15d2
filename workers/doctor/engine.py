"""Look at what only the engine needs: torch, the device, the resampler, the checkpoint.

Importing this module imports torch; the command does that inside the check, so that a machine
without it still gets every other finding.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from django.conf import settings

from synth.engine.codec.files.codec_file import open_codec
from synth.engine.codec.resample import (
    ResamplerChoice,
    chosen_resampler,
    resample_waveform,
)
from synth.engine.codec.torchaudio_import import import_torchaudio
from synth.engine.errors import EngineError
from synth.engine.loading.device_memory import find_memory
from synth.engine.loading.engine_config import choose_numbers, resampler_choice, resolve_device
from synth.engine.loading.memory import gigabytes
from synth.engine.loading.weights import check_dual_ar
from synth.engine.model.config import load_config
from ttsweb.pages.card import CardError, read_card
from workers.doctor.findings import Check, Finding

CLIP_RATE, CODEC_RATE = 48_000, 44_100  # the pair of rates that most clips need
MAX_APART = 1e-5  # between the resamplers, as for the golden vectors


def look_at_torch() -> Finding:
    """Say which build of PyTorch is installed, and whether it can use this machine's GPU."""
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    text = f"{torch.__version__} ({build})"
    if not _has_nvidia_device():
        return Finding("ok", "torch", text)
    if torch.version.cuda is None:
        return Finding(
            "warn",
            "torch",
            f"{text}, but this machine has an NVIDIA device",
            "TTS_TORCH=cuda ./tts doctor",
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
    except EngineError as error:
        return Finding(
            "fail", "device", str(error), "set TTS_DEVICE to a device that is present, or to auto"
        )
    found = find_memory(device)
    memory = f"{gigabytes(found.free)} of {gigabytes(found.total)} free"
    if device.type == "cuda":
        name = torch.cuda.get_device_properties(device).name
        return Finding("ok", "device", f"{device} {name}, {memory}")
    simd = torch.backends.cpu.get_cpu_capability()
    text = f"cpu {simd}, {_threads()}, memory of {found.source}: {memory}"
    return Finding("ok", "device", text)


def _threads() -> str:
    if settings.TORCH_THREADS:
        return f"{settings.TORCH_THREADS} threads (TTS_TORCH_THREADS={settings.TORCH_THREADS})"
    return f"{torch.get_num_threads()} threads (torch's own choice; TTS_TORCH_THREADS can set it)"


def look_at_numbers() -> Finding:
    """Say in which numbers and in which form matrices are multiplied, and why."""
    try:
        device = resolve_device(settings.DEVICE)
        numbers = choose_numbers(
            settings.DTYPE,
            device,
            load_config(settings.CHECKPOINT),
            kernels=settings.ENGINE_KERNELS,
            cache_dir=settings.DATA_DIR / "cache",
        )
    except EngineError as error:
        return Finding("fail", "numbers", str(error), "set TTS_DTYPE, TTS_DEVICE or TTS_CHECKPOINT")
    text = f"{numbers.name}, {numbers.form} matrices ({numbers.reason})"
    text = f"{text}; frames: {numbers.frames}"
    if "C compiler" in numbers.frames or "Python.h" in numbers.frames:
        wanted = "python3-dev" if "Python.h" in numbers.frames else "gcc libc6-dev"
        return Finding(
            "warn", "numbers", text, f"apt-get install {wanted}, then run ./tts doctor again"
        )
    return Finding("ok", "numbers", text)


def look_at_resampler() -> Finding:
    """Say which resampler runs, how torchaudio imports, and that both compute the same."""
    try:
        name = chosen_resampler(resampler_choice(settings.RESAMPLER), CLIP_RATE, CODEC_RATE)
    except EngineError as error:
        return Finding("fail", "resampler", str(error), "TTS_RESAMPLER=builtin")
    found = import_torchaudio()
    text = f"{name} (TTS_RESAMPLER={settings.RESAMPLER}; {found})"
    if found.module is None:
        return Finding("ok", "resampler", text)
    wave = torch.linspace(-1, 1, CLIP_RATE // 10).pow(3)
    ours, _ = resample_waveform(wave, CLIP_RATE, CODEC_RATE, ResamplerChoice.BUILTIN)
    theirs, _ = resample_waveform(wave, CLIP_RATE, CODEC_RATE, ResamplerChoice.TORCHAUDIO)
    apart = float((ours - theirs).abs().max())
    text = f"{text}; it differs from the built-in one by at most {apart:.0e}"
    if apart > MAX_APART:
        return Finding("fail", "resampler", text, "TTS_RESAMPLER=builtin")
    return Finding("ok", "resampler", text)


def look_at_checkpoint() -> Finding:
    """Say which model speaks, and whether its files are complete; only headers are read."""
    name, folder = "checkpoint", settings.CHECKPOINT
    try:
        card = read_card(folder)
        parameters = check_dual_ar(folder)
        codec = open_codec(folder)
    except (EngineError, CardError) as error:
        remedy = "set TTS_CHECKPOINT to a folder with all files of one checkpoint"
        return Finding("fail", name, str(error), remedy)
    text = (
        f"{card.name} in {folder}: {parameters / 1e6:.1f} M parameters, codec {codec.path.name}, "
        f"licence {card.licence}"
    )
    if not card.speaks:
        return Finding(
            "warn",
            name,
            f"{text}; it makes noise instead of speech",
            "set TTS_CHECKPOINT to a model that speaks",
        )
    return Finding("ok", name, text)


def _has_nvidia_device() -> bool:
    return shutil.which("nvidia-smi") is not None or Path("/proc/driver/nvidia").exists()


CHECKS: tuple[tuple[str, Check], ...] = (
    ("torch", look_at_torch),
    ("device", look_at_device),
    ("numbers", look_at_numbers),
    ("resampler", look_at_resampler),
    ("checkpoint", look_at_checkpoint),
)
