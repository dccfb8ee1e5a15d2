"""Tell when memory ran out, and use fewer slots from then on for a while."""

from __future__ import annotations

import torch

GROW_AFTER_FRAMES = 256  # frames without trouble after which more slots are tried, about 12 s


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that the device or the host has no memory left."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    # Torch has no class of its own for it on a CPU, nor for what CUDA takes without the allocator.
    texts = ("can't allocate memory", "CUDA error: out of memory")
    return isinstance(error, RuntimeError) and any(text in str(error) for text in texts)


def free_cached_memory(device: torch.device) -> None:
    """Give back what torch's allocator keeps for later."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


class SlotLimit:
    """Hold how many slots may be in use: fewer after memory ran out, more again little by little.

    Memory that ran out once may have been another process's doing, so every size is tried again.
    """

    def __init__(self, most: int) -> None:
        self.most = self.now = most
        self._frames = 0

    def step_down(self, failed: int, *, still_used: int = 0) -> bool:
        """Allow half of the slots that failed, or those still in use and no more.

        Returns:
            False where a single slot failed with no other in use: nothing smaller can be tried.
        """
        self._frames = 0
        self.now = still_used or max(failed // 2, 1)
        return still_used > 0 or failed > 1

    def note_frame(self) -> None:
        """Count a frame that all slots in use got."""
        if self.now == self.most:
            return
        self._frames += 1
        if self._frames >= GROW_AFTER_FRAMES:
            self._frames = 0
            self.now = min(self.now + max(self.now // 4, 1), self.most)
