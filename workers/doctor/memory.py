"""Look at what fits into memory: the configured engine here, and the real model on usual GPUs."""

from __future__ import annotations

from typing import Any

import torch
from django.conf import settings

from synth.engine.errors import EngineError, SlotsDoNotFitError
from synth.engine.loading.device_memory import DeviceMemory, find_memory
from synth.engine.loading.engine_config import EngineConfig, resolve_device
from synth.engine.loading.memory import Demand, MemoryPlan, NumberFormats, find_demand, gigabytes
from synth.engine.presets.shapes import preset
from synth.engine.slots.sizing import MAX_AUTO_SLOTS, engine_demand, plan_slots
from workers.doctor.findings import Check, Finding
from workers.process.engine_host import engine_config

PROFILES_GB = (16, 24, 48, 80, 141)
PROFILE_POSITIONS = (1024, 2048, 4096)
# What CUDA takes in a process before its first tensor; of a device that is there, what is free now
# is asked, without this.
CONTEXT_BYTES = 600 * 10**6
GPU_FORMATS = NumberFormats(
    model=torch.bfloat16,
    cache=torch.bfloat16,
    encoder=torch.float32,
    decoder=torch.float32,
    matrix_bytes=torch.bfloat16.itemsize,
)
MOST_SLOTS = 512  # that TTS_ENGINE_SLOTS may be
REMEDY = "set TTS_ENGINE_SLOTS or TTS_ENGINE_MAX_POSITIONS, or use a device with more memory"


def look_at_memory() -> Finding:
    """Say how many slots the configured engine has, and what it takes of the memory there is."""
    try:
        config = engine_config()
        device = resolve_device(config.device)
        demand = engine_demand(config, device)
    except EngineError as error:
        return Finding("fail", "memory", f"cannot be planned: {error}", "see the other findings")
    memory = find_memory(device)
    try:
        plan = _plan(demand, memory, device.type, config)
    except SlotsDoNotFitError as error:
        return _too_little(str(error), demand, memory, device.type, config)
    how = "TTS_ENGINE_SLOTS" if config.slots else "chosen by the engine"
    text = (
        f"{plan.slots} slots ({how}) of {plan.max_positions} positions and the model use "
        f"{gigabytes(plan.held)}, and up to {gigabytes(plan.work)} while rendering; "
        f"{memory.source} has {gigabytes(memory.free)} free"
    )
    return Finding("ok", "memory", text, rows=[_row(plan)], table=tuple(plan.table().splitlines()))


def _plan(
    demand: Demand, memory: DeviceMemory, device_type: str, config: EngineConfig
) -> MemoryPlan:
    """Return the plan of a configuration; SlotsDoNotFitError where it does not fit."""
    return plan_slots(
        demand,
        memory,
        device_type,
        asked=config.slots,
        prefix_cache_bytes=config.prefix_cache_bytes,
    )


def _too_little(
    sentence: str, demand: Demand, memory: DeviceMemory, device_type: str, config: EngineConfig
) -> Finding:
    """Return a failure, or a warning when it is only others that take the memory at the moment."""
    empty = DeviceMemory(memory.total, memory.total, memory.source)
    try:
        _plan(demand, empty, device_type, config)
    except SlotsDoNotFitError:
        return Finding("fail", "memory", sentence, REMEDY)
    used = gigabytes(memory.total - memory.free)
    text = f"{sentence} {used} are in use now, perhaps by a worker that is running."
    return Finding(
        "warn", "memory", text, "stop the programs that use the memory, or set TTS_ENGINE_SLOTS"
    )


def look_at_profiles() -> Finding:
    """Say how many slots of the real model fit on GPUs of usual sizes, in bfloat16."""
    shape = preset("full")
    rows = [
        _profile(find_demand(shape.config, shape.codec, GPU_FORMATS, max_positions=positions), size)
        for size in PROFILES_GB
        for positions in PROFILE_POSITIONS
    ]
    text = (
        "slots of S2-Pro in bfloat16, codec in float32, by device and positions of a slot; "
        f"the engine takes at most {MAX_AUTO_SLOTS['cuda']} by itself"
    )
    return Finding("ok", "profiles", text, rows=rows, table=_profile_table(rows))


def _profile(demand: Demand, gigabyte: int) -> dict[str, Any]:
    """Return how many slots fit on a GPU of so many GB; `slots` 0 where not even one does."""
    size = gigabyte * 10**9
    memory = DeviceMemory(size - CONTEXT_BYTES, size, f"{gigabyte} GB")
    found = {"device_gb": gigabyte, "max_positions": demand.max_positions}
    try:
        plan = plan_slots(
            demand,
            memory,
            "cuda",
            most=MOST_SLOTS,
            prefix_cache_bytes=settings.PREFIX_CACHE_BYTES,
        )
    except SlotsDoNotFitError:
        return found | {"slots": 0}
    return found | _row(plan)


def _row(plan: MemoryPlan) -> dict[str, Any]:
    """Return a plan for programs, in bytes."""
    return {
        "slots": plan.slots,
        "max_positions": plan.max_positions,
        "codec_frames": plan.codec_frames,
        "total_bytes": plan.total,
        "parts": dict(plan.parts),
    }


def _profile_table(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the slots as lines, devices down and positions across."""
    slots = {(row["device_gb"], row["max_positions"]): row["slots"] for row in rows}
    heading = "device  " + "".join(f"{positions:>8}" for positions in PROFILE_POSITIONS)
    return (
        heading,
        *(
            f"{size:>3} GB  " + "".join(f"{slots[size, at]:>8}" for at in PROFILE_POSITIONS)
            for size in PROFILES_GB
        ),
    )


CHECKS: tuple[tuple[str, Check], ...] = (
    ("memory", look_at_memory),
    ("profiles", look_at_profiles),
)
