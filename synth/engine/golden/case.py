"""Describe golden vectors: the folder they lie in and the result of checking one case.

A checks module exposes two registries that the runner joins:

- ``CHECKS: dict[str, Check]`` maps the name of a file in ``vectors/`` (``"rope.safetensors"``), or
  of a folder of inputs there with a ``/`` at its end (``"wav/"``), to a function that yields one
  result per case in it.
- ``COMPANIONS: dict[str, str]`` maps a file to the checked file whose check reads it
  (``"edge.json": "edge.safetensors"``).

What neither registry names counts as not understood, which is a failure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from synth.engine.errors import EngineError


class GoldenFolderError(EngineError):
    """A folder is not laid out as golden vectors, or one of its files cannot be read."""

    code = "golden_folder_invalid"


@dataclass(frozen=True)
class CaseResult:
    """Hold the outcome of one case; `expected` and `found` are short texts for the table."""

    file: str
    case: str
    expected: str
    found: str
    passed: bool


@dataclass(frozen=True)
class GoldenFolder:
    """Give access to a golden folder: two checkpoints and the vectors computed with them."""

    root: Path

    @property
    def vectors(self) -> Path:
        """Return the folder of inputs and expected outputs."""
        return self.root / "vectors"

    @property
    def checkpoint(self) -> Path:
        """Return the checkpoint in one file, with its codec."""
        return self.root / "tiny-s2"

    @property
    def sharded(self) -> Path:
        """Return the same language-model weights as bfloat16 shards, without codec."""
        return self.root / "tiny-s2-sharded"

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(p.name for p in self.vectors.iterdir())

    def has(self, name: str) -> bool:
        """Say whether the vectors hold a file of this name."""
        return name in self._names

    def tensors(self, name: str) -> dict[str, Tensor]:
        """Return every array of `vectors/name`; integers as int64, floats as float32.

        The dictionary is shared between callers: do not change its tensors in place.
        """
        return _load_tensors(self._path(name, ".safetensors"))

    def json(self, name: str) -> Any:
        """Return the content of `vectors/name`, freshly parsed."""
        return json.loads(self._path(name, ".json").read_text(encoding="utf-8"))

    def _path(self, name: str, suffix: str) -> Path:
        path = self.vectors / (name if name.endswith(suffix) else name + suffix)
        if not path.is_file():
            raise GoldenFolderError(f"{path} is missing from the golden folder.")
        return path


Check = Callable[[GoldenFolder], Iterator[CaseResult]]


def compare_close(
    file: str, case: str, found: Tensor, expected: Tensor, tolerance: float
) -> CaseResult:
    """Compare two tensors by their largest absolute difference; another shape is a miss."""
    want = f"{_shape(expected)} within {tolerance:g}"
    if found.shape != expected.shape:
        return CaseResult(file, case, want, f"shape {_shape(found)}", False)
    if found.numel() == 0:
        return CaseResult(file, case, want, "max error 0", True)
    error = (found.double() - expected.double()).abs().max().item()
    # A comparison with NaN is false, so a NaN fails here rather than passes.
    return CaseResult(file, case, want, f"max error {error:.3g}", error <= tolerance)


def compare_equal(file: str, case: str, found: Tensor, expected: Tensor) -> CaseResult:
    """Compare two integer tensors exactly, counting the elements that differ."""
    want = f"{_shape(expected)} equal"
    if found.shape != expected.shape:
        return CaseResult(file, case, want, f"shape {_shape(found)}", False)
    mismatches = int((found.to(torch.int64) != expected.to(torch.int64)).sum().item())
    return CaseResult(file, case, want, f"{mismatches} mismatches", mismatches == 0)


def compare_value(file: str, case: str, found: object, expected: object) -> CaseResult:
    """Compare two plain values by equality; long ones are shortened in the texts."""
    if found == expected:
        return CaseResult(file, case, _short(expected), "equal", True)
    return CaseResult(file, case, _short(expected), _short(found), False)


@lru_cache(maxsize=16)
def _load_tensors(path: Path) -> dict[str, Tensor]:
    loaded = load_file(path)
    return {
        name: t.to(torch.float32) if t.is_floating_point() else t.to(torch.int64)
        for name, t in loaded.items()
    }


def _shape(tensor: Tensor) -> str:
    return "x".join(str(size) for size in tensor.shape) or "scalar"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
