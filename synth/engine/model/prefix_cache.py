"""Keep the keys and values of prompts' beginnings that come again: the voices' system messages."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

from torch import Tensor

from synth.engine.model.decode_state import DecodeState
from synth.engine.model.dual_ar import DualAR


@dataclass(frozen=True, slots=True)
class PrefixKeys:
    """Name prefixes by what their keys and values depend on: the columns and how they are computed.

    `form` says the latter: the model, the numbers it computes with, the cache's, and whether
    attention is the strict one. The rotary table follows from the model.
    """

    form: str

    @classmethod
    def of(cls, model_fingerprint: str, model: DualAR, state: DecodeState) -> PrefixKeys:
        """Return the names for one model and the slots that the prefixes are copied into."""
        device = model.device.type
        numbers = f"{model.dtype} {model.form.value} {model.weight_format} {state.cache.keys.dtype}"
        return cls(f"{model_fingerprint} {device} {numbers} strict={state.strict}")

    def key(self, prefix: Tensor) -> str:
        """Return the name of a prefix, int64 [1 + K, S]: a digest of all its rows and the form."""
        digest = hashlib.sha256(f"{self.form} {tuple(prefix.shape)}\n".encode())
        digest.update(prefix.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class KeptPrefix:
    """Hold a prefix's keys and values on the device, [L, KV, S, D] each.

    `number` is this copy's alone: slots filled from it are equal in every bit, which those of a
    prefix that was forgotten and computed again need not be.
    """

    keys: Tensor
    values: Tensor
    number: int = field(default_factory=count(1).__next__)

    @property
    def num_bytes(self) -> int:
        """Return the memory held, in bytes."""
        return sum(tensor.numel() * tensor.element_size() for tensor in (self.keys, self.values))


class PrefixCache:
    """Keep prefixes by their key within a number of bytes; the least recently used goes first.

    Only the thread that owns the device calls it. Slots get copies, so that a prefix may be
    forgotten while speech behind it is made.
    """

    def __init__(self, max_bytes: int) -> None:
        """Begin empty; with 0 bytes nothing is kept."""
        self.max_bytes = max_bytes
        self.num_bytes, self.hits, self.misses = 0, 0, 0
        self._kept: OrderedDict[str, KeptPrefix] = OrderedDict()

    def __len__(self) -> int:
        """Return how many prefixes are kept."""
        return len(self._kept)

    def __contains__(self, key: str) -> bool:
        """Say whether a prefix is kept; neither counted nor a use."""
        return key in self._kept

    def get(self, key: str) -> KeptPrefix | None:
        """Return a prefix and count a hit, or None and count a miss."""
        kept = self._kept.get(key)
        if kept is None:
            self.misses += 1
            return None
        self.hits += 1
        self._kept.move_to_end(key)
        return kept

    def put(self, key: str, prefix: KeptPrefix) -> None:
        """Keep a prefix in place of the least recently used ones; one above the budget is not."""
        self.evict(key)
        if prefix.num_bytes > self.max_bytes:
            return
        while self.num_bytes + prefix.num_bytes > self.max_bytes:
            self.evict(next(iter(self._kept)))
        self._kept[key] = prefix
        self.num_bytes += prefix.num_bytes

    def evict(self, key: str) -> None:
        """Free a prefix; one that is not kept is no error."""
        kept = self._kept.pop(key, None)
        if kept is not None:
            self.num_bytes -= kept.num_bytes

    def forget(self, keys: Iterable[str]) -> None:
        """Free the prefixes of a voice that is no more; what is being spoken goes on."""
        for key in keys:
            self.evict(key)

    def clear(self) -> None:
        """Free all prefixes, as when the device has no memory left."""
        self._kept.clear()
        self.num_bytes = 0
