"""Describe golden vectors: the folder they lie in and the result of checking one case.

A checks module exposes two registries that the runner joins:

- ``CHECKS: dict[str, Check]`` maps the name of a file in ``vectors/`` (``"rope.safetensors"``), or
  of a folder as seen from the golden folder (``"vectors/wav/"``), to a function that yields one
  result per case in it; several modules may check one file.
- ``COMPANIONS: dict[str, str]`` maps a file to the checked file whose check reads it
  (``"edge.json": "edge.safetensors"``).

What neither registry names counts as not understood, which is a failure, and so does a top-level
key of a file that no check read through `GoldenFolder.tensors` or `.json`. A folder's check speaks
of each of its files.
"""

from __future__ import annotations

import json
import wave
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from synth.engine.errors import EngineError

CPU = torch.device("cpu")


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


class ReadKeys(dict[str, Any]):
    """Remember which keys were read, so that a case no check looked at can be reported."""

    def __init__(self, content: dict[str, Any], read: set[str]) -> None:
        super().__init__(content)
        self._read = read

    def __getitem__(self, key: str) -> Any:
        """Return the value and note its key."""
        self._read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value or the default and note the key."""
        self._read.add(key)
        return super().get(key, default)

    def items(self) -> Any:
        """Return all pairs and note all keys."""
        self._read.update(self)
        return super().items()

    def values(self) -> Any:
        """Return all values and note all keys."""
        self._read.update(self)
        return super().values()


@dataclass(frozen=True)
class GoldenFolder:
    """Give access to a golden folder: two checkpoints and the vectors computed with them.

    `device` is where the models run; inputs and expected outputs are on the CPU. It remembers what
    was read of each file's top level; see `unread`.
    """

    root: Path
    device: torch.device = CPU
    _read: dict[str, set[str]] = field(default_factory=dict, compare=False, repr=False)

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

    def has(self, name: str) -> bool:
        """Say whether the vectors hold a file of this name."""
        return (self.vectors / name).is_file()

    def tensors(self, name: str) -> dict[str, Tensor]:
        """Return every array of `vectors/name`; integers as int64, floats as float32.

        The tensors are shared between callers: do not change them in place.
        """
        path = self._path(name, ".safetensors")
        return ReadKeys(_load_tensors(path), self._read.setdefault(path.name, set()))

    def json(self, name: str) -> Any:
        """Return the content of `vectors/name`, freshly parsed."""
        path = self._path(name, ".json")
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            return content
        return ReadKeys(content, self._read.setdefault(path.name, set()))

    def unread(self, name: str) -> list[str]:
        """Return the top-level keys of `vectors/name` that nothing has read through this object."""
        path = self.vectors / name
        if path.suffix == ".safetensors":
            keys = set(_load_tensors(path))
        else:
            content = json.loads(path.read_text(encoding="utf-8"))
            keys = set(content) if isinstance(content, dict) else set()
        return sorted(keys - self._read.get(name, set()))

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
    error = (found.double().cpu() - expected.double().cpu()).abs().max().item()
    # A comparison with NaN is false, so a NaN fails here rather than passes.
    return CaseResult(file, case, want, f"max error {error:.3g}", error <= tolerance)


def compare_equal(file: str, case: str, found: Tensor, expected: Tensor) -> CaseResult:
    """Compare two integer tensors exactly, counting the elements that differ."""
    want = f"{_shape(expected)} equal"
    if found.shape != expected.shape:
        return CaseResult(file, case, want, f"shape {_shape(found)}", False)
    mismatches = int((found.to("cpu", torch.int64) != expected.to(torch.int64)).sum().item())
    return CaseResult(file, case, want, f"{mismatches} mismatches", mismatches == 0)


def not_understood(file: str, case: str) -> CaseResult:
    """Report a file or case that no check knows: a failure, as it went unverified."""
    return CaseResult(file, case, "a check", "not understood", False)


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


_PCM16_BYTES, _PCM16_SCALE = 2, 32768.0


def read_wav(path: Path) -> tuple[Tensor, int]:
    """Return a file's samples, float32 [channels, N] with full scale at 1, and its rate in Hz.

    Raises:
        GoldenFolderError: the package soundfile is missing and the file is not PCM of 16 bits.
    """
    try:
        import soundfile
    except ImportError:
        return _read_pcm16(path)
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    return torch.from_numpy(samples).t(), rate


def _read_pcm16(path: Path) -> tuple[Tensor, int]:
    try:
        with wave.open(str(path), "rb") as file:
            width, rate, channels = file.getsampwidth(), file.getframerate(), file.getnchannels()
            content = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise GoldenFolderError(f"{path} needs the package soundfile: {error}.") from error
    if width != _PCM16_BYTES:
        raise GoldenFolderError(f"{path} needs the package soundfile: it is no PCM of 16 bits.")
    samples = np.frombuffer(content, dtype="<i2").reshape(-1, channels)
    return torch.from_numpy(samples.astype(np.float32) / _PCM16_SCALE).t(), rate
