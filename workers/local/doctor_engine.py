"""Look at what only the engine needs: torch, device, resampler, checkpoint, memory.

Importing this module imports torch; the command does that inside the check, so that a machine
without it still gets every other finding.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from django.conf import settings

from synth.card import CardError, read_card
from synth.engine.codec.codec_file import open_codec
from synth.engine.codec.config import (
    ENCODER_WINDOW,
    MODULE_WINDOW,
    SAMPLE_RATE,
    CodecConfig,
    TransformerConfig,
)
from synth.engine.codec.resample import ResamplerChoice, chosen_resampler, resample_waveform
from synth.engine.codec.torchaudio_import import import_torchaudio
from synth.engine.device import DeviceMemory, find_memory
from synth.engine.errors import EngineError, SlotsDoNotFitError
from synth.engine.loading.engine_config import (
    choose_numbers,
    describe_device,
    describe_graphs,
    resampler_choice,
    resolve_device,
)
from synth.engine.loading.memory import MemoryPlan, NumberFormats, find_demand, gigabytes
from synth.engine.loading.weights import check_dual_ar
from synth.engine.model.config import MODEL_TYPE, load_config, parse_config
from synth.engine.slots.sizing import MAX_AUTO_SLOTS, engine_demand, plan_slots
from workers.local.doctor import Check, Finding, fail, ok, warn
from workers.process.engine_host import engine_config

CLIP_RATE, CODEC_RATE = 48_000, 44_100  # the pair of rates that most clips need
WITHOUT_TORCHAUDIO = "TTS_ENGINE_WITHOUT=torchaudio"
MAX_APART = 1e-5  # between the resamplers, as for the golden vectors


def look_at_torch() -> Finding:
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    text = f"{torch.__version__} ({build})"
    if shutil.which("nvidia-smi") is None and not Path("/proc/driver/nvidia").exists():
        return ok(text)
    if torch.version.cuda is None:
        return warn(f"{text}, but this machine has an NVIDIA device", "TTS_TORCH=cuda ./tts doctor")
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]  # torch has no types here
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        return fail(f"{text}: {reason}", "update the NVIDIA driver")
    return ok(text)


def look_at_device() -> Finding:
    try:
        device = resolve_device(settings.DEVICE)
    except EngineError as error:
        return fail(str(error), "set TTS_DEVICE to a device that is present, or to auto")
    found = find_memory(device)
    memory = f"{gigabytes(found.free)} of {gigabytes(found.total)} free"
    if device.type == "cuda":
        return ok(f"{describe_device(device)}, {memory}")
    simd = torch.backends.cpu.get_cpu_capability()
    who = "OMP_NUM_THREADS" if os.environ.get("OMP_NUM_THREADS") else "torch's own choice"
    threads = f"{torch.get_num_threads()} threads ({who})"
    return ok(f"cpu {simd}, {threads}, memory of {found.source}: {memory}")


def look_at_numbers() -> Finding:
    try:
        config = engine_config()
        device = resolve_device(config.device)
        numbers = choose_numbers(
            config.dtype,
            device,
            load_config(config.checkpoint),
            kernels=config.kernels,
            cache_dir=config.cache_dir,
        )
        graphs = describe_graphs(config.graphs, device)
    except EngineError as error:
        return fail(str(error), "set TTS_DTYPE, TTS_DEVICE or TTS_CHECKPOINT")
    text = f"{numbers.name}, {numbers.form} matrices ({numbers.reason})"
    text = f"{text}; frames: {numbers.frames}, {graphs}"
    if "C compiler" in numbers.frames or "Python.h" in numbers.frames:
        wanted = "python3-dev" if "Python.h" in numbers.frames else "gcc libc6-dev"
        return warn(text, f"apt-get install {wanted}, then run ./tts doctor again")
    if "PyTorch, slower" in numbers.frames:
        return warn(text, "use a device and a driver that run Triton's kernels, or live with it")
    return ok(text)


def look_at_resampler() -> Finding:
    try:
        choice = engine_config().resampler
        name = chosen_resampler(resampler_choice(choice), CLIP_RATE, CODEC_RATE)
    except EngineError as error:
        return fail(str(error), WITHOUT_TORCHAUDIO)
    found = import_torchaudio()
    text = f"{name} ({found})"
    if found.module is None:
        return ok(text)
    wave = torch.linspace(-1, 1, CLIP_RATE // 10).pow(3)
    ours, _ = resample_waveform(wave, CLIP_RATE, CODEC_RATE, ResamplerChoice.BUILTIN)
    theirs, _ = resample_waveform(wave, CLIP_RATE, CODEC_RATE, ResamplerChoice.TORCHAUDIO)
    apart = float((ours - theirs).abs().max())
    text = f"{text}; it differs from the built-in one by at most {apart:.0e}"
    if apart > MAX_APART:
        return fail(text, WITHOUT_TORCHAUDIO)
    return ok(text)


def look_at_checkpoint() -> Finding:
    folder = settings.CHECKPOINT
    try:
        card = read_card(folder)
        parameters = check_dual_ar(folder)
        codec = open_codec(folder)
    except (EngineError, CardError) as error:
        remedy = "set TTS_CHECKPOINT to a folder with all files of one checkpoint"
        return fail(str(error), remedy)
    text = (
        f"{card.name} in {folder}: {parameters / 1e6:.1f} M parameters, codec {codec.path.name}, "
        f"licence {card.licence}"
    )
    if not card.speaks:
        return warn(
            f"{text}; it makes noise instead of speech", "set TTS_CHECKPOINT to a model that speaks"
        )
    return ok(text)


PROFILES_GB = (16, 24, 48, 80, 141)
PROFILE_POSITIONS = (1024, 2048, 4096)
# What CUDA takes in a process before its first tensor; of a device that is there, what is free now
# is asked, without this.
CONTEXT_BYTES = 600 * 10**6
_HALF, _SINGLE = torch.bfloat16, torch.float32
GPU_FORMATS = NumberFormats(
    model=_HALF,
    cache=_HALF,
    encoder=_SINGLE,
    decoder=_SINGLE,
    matrix_bytes=_HALF.itemsize,
    has_own_waves=True,
)
# The published shape of S2-Pro.
PUBLISHED_LM = parse_config(
    {
        "model_type": MODEL_TYPE,
        "text_config": {
            "vocab_size": 155_776,
            "max_seq_len": 32_768,
            "n_layer": 36,
            "dim": 2560,
            "intermediate_size": 9728,
            "n_head": 32,
            "n_local_heads": 8,
            "head_dim": 128,
            "rope_base": 1_000_000,
            "norm_eps": 1e-6,
            "attention_qk_norm": True,
        },
        "audio_decoder_config": {
            "vocab_size": 4096,
            "num_codebooks": 10,
            "n_layer": 4,
            "attention_qk_norm": False,
        },
    }
)
PUBLISHED_CODEC = CodecConfig(
    sample_rate=SAMPLE_RATE,
    latent_dim=1024,
    encoder_dim=64,
    encoder_strides=(2, 4, 8, 8),
    decoder_dim=1536,
    decoder_rates=(8, 8, 4, 2),
    downsample_factors=(2, 2),
    upsample_factors=(2, 2),
    codebook_dim=8,
    semantic_codebook_size=4096,
    residual_codebook_size=1024,
    num_residual_codebooks=9,
    encoder_transformer=TransformerConfig(1024, 4, 16, 3072, ENCODER_WINDOW),
    pre_module=TransformerConfig(1024, 8, 16, 3072, MODULE_WINDOW),
    post_module=TransformerConfig(1024, 8, 16, 3072, MODULE_WINDOW),
)
MOST_SLOTS = 512  # that TTS_ENGINE_SLOTS may be
REMEDY = "set TTS_ENGINE_SLOTS or TTS_ENGINE_MAX_POSITIONS, or use a device with more memory"


def look_at_memory() -> Finding:
    try:
        config = engine_config()
        device = resolve_device(config.device)
        demand = engine_demand(config, device)
    except EngineError as error:
        return fail(f"cannot be planned: {error}", "see the other findings")
    memory = find_memory(device)
    plan_in = partial(
        plan_slots,
        demand,
        device_type=device.type,
        asked=config.slots,
        prefix_cache_bytes=config.prefix_cache_bytes,
    )
    try:
        plan = plan_in(memory)
    except SlotsDoNotFitError as error:
        try:
            plan_in(DeviceMemory(memory.total, memory.total, memory.source))
        except SlotsDoNotFitError:
            return fail(str(error), REMEDY)
        used = gigabytes(memory.total - memory.free)  # only others take the memory at the moment
        text = f"{error} {used} are in use now, perhaps by a worker that is running."
        return warn(text, "stop the programs that use the memory, or set TTS_ENGINE_SLOTS")
    how = "TTS_ENGINE_SLOTS" if config.slots else "chosen by the engine"
    text = (
        f"{plan.slots} slots ({how}) of {plan.max_positions} positions and the model use "
        f"{gigabytes(plan.held)}, and up to {gigabytes(plan.work)} while rendering; "
        f"{memory.source} has {gigabytes(memory.free)} free"
    )
    return ok(text, rows=[_as_row(plan)], table=tuple(plan.table().splitlines()))


def _as_row(plan: MemoryPlan) -> dict[str, Any]:
    """Return a plan for programs, in bytes."""
    return {
        "slots": plan.slots,
        "max_positions": plan.max_positions,
        "codec_frames": plan.codec_frames,
        "total_bytes": plan.total,
        "parts": dict(plan.parts),
    }


def look_at_profiles() -> Finding:
    cache_bytes = engine_config().prefix_cache_bytes
    rows: list[dict[str, Any]] = []
    table = ["device  " + "".join(f"{positions:>8}" for positions in PROFILE_POSITIONS)]
    for size in PROFILES_GB:
        total = size * 10**9
        memory = DeviceMemory(total - CONTEXT_BYTES, total, f"{size} GB")
        for positions in PROFILE_POSITIONS:
            demand = find_demand(
                PUBLISHED_LM, PUBLISHED_CODEC, GPU_FORMATS, max_positions=positions
            )
            row: dict[str, Any] = {"device_gb": size, "max_positions": positions, "slots": 0}
            with suppress(SlotsDoNotFitError):  # not even one
                plan = plan_slots(
                    demand, memory, "cuda", most=MOST_SLOTS, prefix_cache_bytes=cache_bytes
                )
                row |= _as_row(plan)
            rows.append(row)
        slots = [row["slots"] for row in rows[-len(PROFILE_POSITIONS) :]]
        table.append(f"{size:>3} GB  " + "".join(f"{count:>8}" for count in slots))
    text = (
        "slots of S2-Pro in bfloat16, codec in float32, by device and positions of a slot; "
        f"the engine takes at most {MAX_AUTO_SLOTS['cuda']} by itself"
    )
    return ok(text, rows=rows, table=tuple(table))


CHECKS: tuple[tuple[str, Check], ...] = (
    ("torch", look_at_torch),
    ("device", look_at_device),
    ("numbers", look_at_numbers),
    ("resampler", look_at_resampler),
    ("checkpoint", look_at_checkpoint),
    ("memory", look_at_memory),
    ("profiles", look_at_profiles),
)
