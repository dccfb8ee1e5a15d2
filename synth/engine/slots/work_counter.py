"""Count what the device does, so that a watcher sees whether it lives."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn


class WorkCounter:
    """Grow with everything done: frames, prompts, and every layer of the codec.

    On a slow processor one pass of the codec takes minutes, so its layers count one by one.
    """

    def __init__(self, halves: Iterable[nn.Module]) -> None:
        self.count = 0
        self._hooks = [
            module.register_forward_pre_hook(self.note)
            for half in halves
            for module in half.modules()
            if not any(module.children())
        ]

    def note(self, *_: object) -> None:
        """Count one step; several threads may, and one lost between them does not matter."""
        self.count += 1

    def close(self) -> None:
        """Stop counting layers; the codec may live on in another engine."""
        for hook in self._hooks:
            hook.remove()
