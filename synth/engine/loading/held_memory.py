"""Measure what a loaded engine holds, to be set beside what was predicted."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from synth.engine.loading.memory import MemoryPlan
from synth.engine.model.linear import Int8Linear


def held_bytes(*roots: object) -> int:
    """Return the bytes of all tensors that objects of the engine hold, each memory once.

    Looks into modules, containers and the engine's own objects, private attributes included;
    tensors in a library's own layout count with their numbers, without its padding.
    """
    seen: set[int] = set()
    memories: dict[int, int] = {}
    waiting = list(roots)
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Tensor):
            memories.update([_memory(item)])
        elif isinstance(item, Int8Linear):  # its rows are in an object of the library's
            memories[id(item)] = item.num_bytes
        else:
            waiting.extend(_inside(item))
    return sum(memories.values())


def memory_report(plan: MemoryPlan, device: torch.device, held_at_start: int) -> dict[str, object]:
    """Return what pages and logs show: bytes predicted by part, and bytes held.

    On CUDA the bytes held are the allocator's, now and at most since the start of the process; on a
    CPU they are those of the tensors that weights and slots had when the engine started.
    """
    report: dict[str, object] = {
        "slots": plan.slots,
        "max_positions": plan.max_positions,
        "codec_frames": plan.codec_frames,
        "predicted": dict(plan.parts),
        "predicted_total": plan.total,
        "predicted_held": plan.held,
        "held": held_at_start,
    }
    if device.type == "cuda":
        report["held"] = torch.cuda.memory_allocated(device)
        report["peak"] = torch.cuda.max_memory_allocated(device)
    return report


def _memory(tensor: Tensor) -> tuple[int, int]:
    """Return where a tensor's numbers are, and how many bytes of memory that is."""
    if tensor.layout is not torch.strided:
        return id(tensor), tensor.numel() * tensor.element_size()
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


def _inside(item: object) -> Iterable[object]:
    """Return what an object holds; nothing for what is not the engine's or a container."""
    if isinstance(item, dict):
        return list(item.values())
    if isinstance(item, list | tuple | set):
        return list(item)
    if not isinstance(item, nn.Module) and not type(item).__module__.startswith("synth.engine"):
        return []
    names = [name for kind in type(item).__mro__ for name in getattr(kind, "__slots__", ())]
    slots = [getattr(item, name) for name in names if hasattr(item, name)]
    return [*slots, *getattr(item, "__dict__", {}).values()]
