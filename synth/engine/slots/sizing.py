"""Choose how many slots an engine has, and refuse those that do not fit before taking memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count

import torch

from synth.engine.codec.codec_file import open_codec
from synth.engine.codec.config import CodecConfig
from synth.engine.codec.fused import OPERANDS
from synth.engine.codec.halves import CodecDecoder, CodecEncoder, default_batch_frames
from synth.engine.codec.load import decoding_precision, half_dtype, wants_kernels
from synth.engine.codec.streams import graph_bytes
from synth.engine.device import DeviceMemory, find_memory
from synth.engine.errors import SlotsDoNotFitError
from synth.engine.loading.engine_config import (
    EngineConfig,
    Numbers,
    choose_numbers,
    resolve_device,
    slot_positions,
    wants_graphs,
)
from synth.engine.loading.loaded_models import LoadedModels
from synth.engine.loading.memory import (
    Demand,
    MemoryPlan,
    NumberFormats,
    find_demand,
    gigabytes,
)
from synth.engine.model.config import LMConfig, load_config
from synth.engine.model.kv_cache import cache_dtype

# Slots that the engine takes by itself. On a CPU a frame of more than 16 streams takes as much
# longer as it gives more, so that only waiting grows; on CUDA past about 50 streams keys and values
# cost more to read than weights.
MAX_AUTO_SLOTS = {"cpu": 16, "cuda": 64}
MIN_CODEC_FRAMES = 64  # 3 s of audio; longer segments go through the decoder in parts
MIN_RESERVE = 256 * 2**20
# For what no plan knows: fragments, libraries' workspaces, and on a CPU the other processes.
RESERVE_SHARE = {"cpu": 0.10, "cuda": 0.05}
# A narrow codec's passes on a CPU are so short that what Python does for each of them counts.
CPU_PASS_BYTES = 320 * 2**20  # about 64 frames of a full-size decoder
MOST_CPU_FRAMES = 192
SPEAKING_POSITIONS = 512  # a slot that is advised has room for a short voice and a sentence
CODEC_SHARE = 0.25  # of what weights and reserve leave
PREFIX_SHARE = 0.10  # of the same; the codec's is of what is left after this
# Of a number in 8 bits, measured: scale and sum of its row, and on a CPU the layout's padding.
EIGHT_BIT_BYTES = {"cpu": 1.3, "cuda": 1.005}
_SMALLER = ("int8-slow", "int8")  # formats that are advised, the more exact one first

_Find = Callable[..., tuple[MemoryPlan | None, int]]  # `_find_plan`, of one device


def plan_engine(config: EngineConfig, models: LoadedModels | None = None) -> MemoryPlan:
    """Return what an engine will take on its device: over loaded models, or else of a checkpoint.

    Of a checkpoint sizes are read and no weight.

    Raises:
        CheckpointError, InvalidSpecError: as for `engine_demand`.
        SlotsDoNotFitError: as for `plan_slots`.
    """
    device = resolve_device(config.device) if models is None else models.device
    demand, memory = engine_demand(config, device, models), find_memory(device)
    if models is not None:  # whose weights are there
        memory = replace(memory, free=memory.free + demand.weight_bytes)
    kept = config.prefix_cache_bytes
    return plan_slots(demand, memory, device.type, asked=config.slots, prefix_cache_bytes=kept)


def engine_demand(
    config: EngineConfig, device: torch.device, models: LoadedModels | None = None
) -> Demand:
    """Return what an engine over loaded models takes, or else one of a checkpoint.

    Raises:
        CheckpointError, InvalidSpecError: as for `load_models`, and `wants_graphs`.
    """
    has_graphs = wants_graphs(config.graphs, device)  # refused here, before weights are loaded
    if models is None:
        lm, codec = load_config(config.checkpoint), open_codec(config.checkpoint).config
    else:
        lm, codec = models.dual_ar.config, models.decoder.config
    numbers = choose_numbers(
        config.dtype, device, lm, kernels=config.kernels, cache_dir=config.cache_dir
    )
    demand_in = partial(_demand_in, config=config, device=device, lm=lm, codec=codec)
    demand = demand_in(numbers)
    if has_graphs:
        graphs = graph_bytes(codec, _codec_dtypes(config, device)[1], demand.codec_frame_work)
        demand = replace(demand, codec_graphs=graphs)
    if numbers.form.eight_bits:
        return demand
    smaller = {
        name: replace(
            demand_in(choose_numbers(name, device, lm, kernels="off")),
            codec_graphs=demand.codec_graphs,
        )
        for name in _SMALLER
        if device.type == "cuda" or name == "int8"
    }
    return replace(demand, smaller=smaller)


def _demand_in(
    numbers: Numbers,
    *,
    config: EngineConfig,
    device: torch.device,
    lm: LMConfig,
    codec: CodecConfig,
) -> Demand:
    """Return what a model takes in these numbers, without what is recorded of the codec."""
    encoder, decoder = _codec_dtypes(config, device)
    eight, floats = EIGHT_BIT_BYTES[device.type], numbers.dtype.itemsize
    fast = numbers.form if numbers.fast_form is None else numbers.fast_form
    formats = NumberFormats(
        model=numbers.dtype,
        cache=cache_dtype(device, numbers.dtype),
        encoder=encoder,
        decoder=decoder,
        matrix_bytes=eight if numbers.form.eight_bits else floats,
        fast_matrix_bytes=eight if fast.eight_bits else floats,
        has_own_waves=_has_own_waves(config, device),
    )
    positions = slot_positions(config.max_positions, device)
    return find_demand(lm, codec, formats, max_positions=positions)


def _codec_dtypes(config: EngineConfig, device: torch.device) -> tuple[torch.dtype, torch.dtype]:
    """Return the dtypes of the codec's encoding and decoding half."""
    return (
        half_dtype(CodecEncoder, config.codec_encode_dtype, device),
        half_dtype(CodecDecoder, decoding_precision(config.codec_decode_dtype, device), device),
    )


def _has_own_waves(config: EngineConfig, device: torch.device) -> bool:
    """Say whether one kernel does the decoder's convolutions."""
    precision = decoding_precision(config.codec_decode_dtype, device)
    return precision in OPERANDS and wants_kernels(config.kernels, device)


def plan_slots(
    demand: Demand,
    memory: DeviceMemory,
    device_type: str,
    *,
    asked: int = 0,
    most: int | None = None,
    prefix_cache_bytes: int = 0,
) -> MemoryPlan:
    """Return the plan of an engine on a device with this memory free, before weights are loaded.

    Args:
        asked: slots; 0 takes as many as fit, at most `most` (None: MAX_AUTO_SLOTS).
        prefix_cache_bytes: what kept voice prefixes may take, but no more than PREFIX_SHARE.

    Raises:
        SlotsDoNotFitError: the slots asked for do not fit, or not even one; the text has the
            numbers and what to set.
    """
    find = partial(
        _find_plan, device_type=device_type, most=most, prefix_cache_bytes=prefix_cache_bytes
    )
    plan, left = find(demand, memory, asked=asked)
    if plan is None:
        raise SlotsDoNotFitError(_refusal(demand, memory, left, asked, device_type, find))
    return plan


def _find_plan(
    demand: Demand,
    memory: DeviceMemory,
    *,
    device_type: str,
    asked: int = 0,
    most: int | None,
    prefix_cache_bytes: int,
) -> tuple[MemoryPlan | None, int]:
    """Return the plan, None where nothing fits, and the bytes that were left for slots."""
    reserve = _reserve(memory, device_type)
    shared = demand.prompt_work + demand.codec_graphs
    room = memory.free - reserve - demand.weight_bytes - shared
    prefix_cache_bytes = min(prefix_cache_bytes, max(int(PREFIX_SHARE * room), 0))
    room -= prefix_cache_bytes
    # In one pass the codec takes the most frames that leave the slots their room.
    frames = default_batch_frames(device_type)
    if device_type == "cpu":
        frames = max(frames, min(CPU_PASS_BYTES // demand.codec_frame_work, MOST_CPU_FRAMES))
    most_work = min(CODEC_SHARE * room, room - max(asked, 1) * demand.slot_bytes)
    while frames > MIN_CODEC_FRAMES and frames * demand.codec_frame_work > most_work:
        frames //= 2
    work = demand.codec_work(frames)
    left = room - work
    fitting = max(left, 0) // demand.slot_bytes
    if fitting < max(asked, 1):
        return None, left
    slots = asked or min(fitting, MAX_AUTO_SLOTS[device_type] if most is None else most)
    parts = {
        **demand.weights,
        **{name: slots * size for name, size in demand.slot.items()},
        "prompt_work": demand.prompt_work,
        "codec_work": work,
        **({"codec_graphs": demand.codec_graphs} if demand.codec_graphs else {}),
        "prefix_cache": prefix_cache_bytes,
        "reserve": reserve,
    }
    return MemoryPlan(slots, demand.max_positions, frames, parts), left


def _reserve(memory: DeviceMemory, device_type: str) -> int:
    return max(int(memory.free * RESERVE_SHARE[device_type]), MIN_RESERVE)


def _refusal(
    demand: Demand, memory: DeviceMemory, left: int, asked: int, device_type: str, find: _Find
) -> str:
    """Return the sentence about slots that do not fit into the `left` bytes, and what would."""
    reserve = _reserve(memory, device_type)
    others = memory.free - left - demand.weight_bytes - reserve
    taken = (
        f"the weights need {gigabytes(demand.weight_bytes)}, working memory "
        f"{gigabytes(others)} and the reserve {gigabytes(reserve)} of "
        f"{gigabytes(memory.free)} free"
    )
    slots, positions = max(asked, 1), demand.max_positions
    per_position = demand.slot_bytes / positions
    fewer, shorter = left // demand.slot_bytes, int(left / slots / per_position)
    can_shorten = shorter >= min(positions, SPEAKING_POSITIONS)
    if fewer < 1 and not can_shorten:
        return (
            f"The model does not fit into the memory of {memory.source}: {taken}. "
            f"{_what_fits(demand, memory, asked, find)}"
        )
    advice = [f"TTS_ENGINE_SLOTS to {fewer} or fewer"] if fewer >= 1 else []
    if can_shorten:
        advice.append(f"TTS_ENGINE_MAX_POSITIONS to {shorter} or fewer")
    return (
        f"{slots} slot{'s' if slots > 1 else ''} of {positions} positions need "
        f"{gigabytes(slots * demand.slot_bytes)}, but {memory.source} has only "
        f"{gigabytes(left)} left for them: {taken}. Set {', or '.join(advice)}."
    )


def _what_fits(demand: Demand, memory: DeviceMemory, asked: int, find: _Find) -> str:
    """Return the advice for a model that does not fit; it was tried on the plan."""
    formats = {"": demand, **demand.smaller}
    for slots in dict.fromkeys((asked, 0)):
        for name, smaller in demand.smaller.items():
            if find(smaller, memory, asked=slots)[0] is not None:
                more = "" if slots == asked else " and TTS_ENGINE_SLOTS=0"
                return f"Set TTS_DTYPE={name}{more}, with which it fits."
    name, smallest = min(formats.items(), key=lambda each: each[1].weight_bytes)
    sizes = (replace(memory, free=size * 10**9) for size in count(1))
    enough = next(size for size in sizes if find(smallest, size)[0] is not None)
    how = f" with TTS_DTYPE={name}" if name else ""
    return (
        f"Use a device with {enough.free // 10**9} GB of free memory, which is enough for it{how}."
    )
