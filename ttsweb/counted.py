"""Write a count with its noun, for messages and pages that people read."""

from __future__ import annotations


def counted(number: int, noun: str, several: str = "") -> str:
    """Return "1 clip" or "3 clips"; `several` is the plural where it is not the noun with an s."""
    return f"{number} {noun if number == 1 else several or f'{noun}s'}"
