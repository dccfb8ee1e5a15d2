"""Keep the numbers that a request brings to its slot side by side: they go there at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from synth.engine.transfer import copy_to

# `status` and `frame` come first: they are what the host looks at, in one copy.
INTEGERS = (
    "status",
    "frame",
    "position",
    "frame_limit",
    "limit_status",
    "noise_offset",
    "seed",
    "top_k",
    "prefix",
    "prefix_positions",
)
FLOATS = ("temperature", "top_p")


@dataclass(frozen=True, slots=True, eq=False)
class SlotRows:
    """Hold one row per number, each with all slots: int64 [I, B] and float32 [F, B]."""

    integers: Tensor
    floats: Tensor

    @classmethod
    def allocate(cls, num_slots: int, device: torch.device) -> SlotRows:
        """Return the rows of free slots."""
        integers = torch.zeros((len(INTEGERS), num_slots), dtype=torch.int64, device=device)
        integers[INTEGERS.index("top_k")] = 1
        return cls(integers, torch.ones((len(FLOATS), num_slots), device=device))

    def tensors(self) -> dict[str, Tensor]:
        """Return each number of all slots by its name, [B], over the same memory."""
        return {
            **dict(zip(INTEGERS, self.integers.unbind(), strict=True)),
            **dict(zip(FLOATS, self.floats.unbind(), strict=True)),
        }

    @property
    def progress(self) -> Tensor:
        """Return status and frame of all slots, int64 [2, B], over the same memory."""
        return self.integers[:2]

    def write(self, slot: int, values: Mapping[str, float]) -> None:
        """Set a slot's numbers: those of the names given, 0 for all others."""
        unknown = values.keys() - {*INTEGERS, *FLOATS}
        if unknown:
            raise ValueError(f"a slot has no {sorted(unknown)}")
        integers = torch.tensor([int(values.get(name, 0)) for name in INTEGERS])
        floats = torch.tensor([float(values.get(name, 0)) for name in FLOATS], dtype=torch.float32)
        copy_to(self.integers[:, slot], integers)
        copy_to(self.floats[:, slot], floats)

    def move(self, source: int, target: int) -> None:
        """Copy a slot's numbers over those of another."""
        self.integers[:, target] = self.integers[:, source]
        self.floats[:, target] = self.floats[:, source]
