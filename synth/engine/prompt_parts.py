"""Build prompts in two parts, and keep the voices' parts that were built last."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from synth.contract import Reference
from synth.engine.prefix_cache import PrefixKeys
from synth.engine.prompt import PromptBuilder, VoicePrompt

_MAX_KEPT = 64  # voices' parts, of about 60 kB for each ten seconds of speech


@dataclass(frozen=True, slots=True, eq=False)
class PromptPrefix:
    """Hold the voices' part of a prompt, int64 [1 + K, P], and its name in the prefix cache."""

    columns: Tensor
    key: str


class PromptParts:
    """Turn voices and texts into columns; safe to use from every thread.

    The voices' parts are kept by a digest of transcripts and codes, least recently used out first.
    """

    def __init__(self, builder: PromptBuilder, keys: PrefixKeys) -> None:
        self._builder, self._keys = builder, keys
        self._kept: OrderedDict[bytes, PromptPrefix] = OrderedDict()
        self._lock = threading.Lock()

    def prefix(self, references: Sequence[Reference]) -> PromptPrefix:
        """Return the voices' part; InvalidSpecError for codes that the model has not."""
        digest = _digest(references)
        with self._lock:
            kept = self._kept.get(digest)
            if kept is not None:
                self._kept.move_to_end(digest)
                return kept
        voices = [
            VoicePrompt(reference.text, torch.from_numpy(reference.codes.astype(np.int64)))
            for reference in references
        ]
        columns = self._builder.system(voices)
        made = PromptPrefix(columns, self._keys.key(columns))
        with self._lock:
            self._kept[digest] = made
            if len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
        return made

    def own(self, text: str) -> Tensor:
        """Return the text's part, int64 [1 + K, S]."""
        return self._builder.turn(text)

    def forget(self, references: Sequence[Reference]) -> str:
        """Drop the voices' part of a voice that is no more; return its name in the prefix cache."""
        key = self.prefix(references).key
        with self._lock:
            self._kept.pop(_digest(references), None)
        return key


def _digest(references: Sequence[Reference]) -> bytes:
    digest = hashlib.sha256()
    for reference in references:
        text = reference.text.encode()
        digest.update(f"{len(text)} {reference.codes.dtype} {reference.codes.shape}\n".encode())
        digest.update(text)
        digest.update(np.ascontiguousarray(reference.codes).tobytes())
    return digest.digest()
