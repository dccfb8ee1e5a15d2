"""Build prompts: text as ids of the checkpoint's own tokenizer, then columns of ids and codes.

A prompt is int64 [1 + K, S]: row 0 holds token ids, rows 1..K the codes of audio columns and zeros
elsewhere. Every text part is tokenised on its own, so merges never cross a part's edge.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from synth.contract import Reference, Turn
from synth.engine.errors import CheckpointError, InvalidSpecError
from synth.engine.model.config import SpecialIds
from synth.engine.model.dual_ar import DualAR

SPEAKER_TAG = re.compile(r"<\|speaker:\d+\|>")
_SEMANTIC = re.compile(r"<\|semantic:([0-9]+)\|>")
_SPECIAL_SPELLING = re.compile(r"<\|.*\|>", re.DOTALL)
_USED_TOKENS = ("<|im_start|>", "<|im_end|>", "<|voice|>")


class Tokenizer:
    """Encode the prompt's own pieces and, apart from them, text that people wrote."""

    def __init__(self, backend: Any) -> None:
        """Look the special ids up by name; raise CheckpointError when one is missing.

        Args:
            backend: a `tokenizers.Tokenizer`, or a preset's small one with the same methods.
        """
        self._backend = backend
        self.special = _find_special_ids(backend)
        reserved = {
            token_id: token.content
            for token_id, token in backend.get_added_tokens_decoder().items()
            if (token.special or _SPECIAL_SPELLING.fullmatch(token.content))
            and not SPEAKER_TAG.fullmatch(token.content)
        }
        self._reserved_ids = frozenset(reserved)
        # Longest first, so that of two spellings that begin alike the whole one is found.
        spellings = sorted(reserved.values(), key=len, reverse=True)
        self._reserved = re.compile("|".join(re.escape(text) for text in spellings))

    @classmethod
    def from_checkpoint(cls, checkpoint_dir: Path) -> Tokenizer:
        """Load `tokenizer.json`; raise CheckpointError when it is missing or unusable.

        The library is imported here: what reads no such file runs on a machine without it.
        """
        path = checkpoint_dir / "tokenizer.json"
        if not path.is_file():
            raise CheckpointError(
                f"{path} is missing, and no prompt can be built without it; download the "
                "checkpoint again."
            )
        try:
            from tokenizers import Tokenizer as Library
        except ImportError as error:
            raise CheckpointError(
                f"{path} needs the package tokenizers, which cannot be imported ({error}); "
                "install the extra `engine`."
            ) from error
        try:
            backend = Library.from_file(str(path))
        except Exception as error:  # the library raises bare Exception for every broken file
            raise CheckpointError(f"{path} cannot be read: {error}.") from error
        return cls(backend)

    def encode(self, text: str) -> list[int]:
        """Return the ids of one piece; spellings of special tokens become those tokens."""
        try:
            ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        except (UnicodeEncodeError, TypeError) as error:
            raise InvalidSpecError(
                "The text contains half of a surrogate pair; remove it."
            ) from error
        return ids

    def encode_user_text(self, text: str, *, live_special_tokens: bool = False) -> list[int]:
        """Return the ids of text that people wrote; reserved spellings stay plain characters.

        With `live_special_tokens` they act as the tokens they spell. Speaker tags are no tokens.
        """
        if live_special_tokens:
            return self.encode(text)
        # Cut behind the first character of every reserved spelling: encoded apart, no piece holds
        # a whole spelling any more, and nothing is lost or added.
        cuts = [match.start() + 1 for match in self._reserved.finditer(text)]
        pieces = [text[start:end] for start, end in pairwise([0, *cuts, len(text)])]
        ids = [token for piece in pieces for token in self.encode(piece)]
        if not self._reserved_ids.isdisjoint(ids):  # a spelling that only normalisation completes
            raise InvalidSpecError(
                "The text contains a reserved token such as <|im_end|>; remove it."
            )
        return ids

    def id_of(self, token: str) -> int | None:
        """Return a token's id, None where the vocabulary has no such token."""
        found: int | None = self._backend.token_to_id(token)
        return found


def _find_special_ids(backend: Any) -> SpecialIds:
    vocabulary = backend.get_vocab(with_added_tokens=True)
    for token in _USED_TOKENS:
        if token not in vocabulary:
            raise CheckpointError(f"tokenizer.json has no token {token}.")
    codes = {
        int(match[1]): token_id
        for token, token_id in vocabulary.items()
        if (match := _SEMANTIC.fullmatch(token))
    }
    if not codes:
        raise CheckpointError("tokenizer.json has no token <|semantic:0|> and none after it.")
    first = codes.get(0, min(codes.values()))
    for code in range(len(codes)):
        if codes.get(code) != first + code:
            raise CheckpointError(
                f"tokenizer.json: <|semantic:{code}|> is missing or not beside the token "
                "before it, so codes would mean other tokens than in training. Download the "
                "checkpoint again."
            )
    return SpecialIds(vocabulary["<|im_end|>"], first, first + len(codes) - 1)


PROMPT_VERSION = "1"  # goes into fingerprints: raise it when the same request gives other columns

_PLAIN_SYSTEM = "convert the provided text to speech"
_VOICE_SYSTEM = (
    "convert the provided text to speech reference to the following:\n\nText:\n",
    "\n\nSpeech:\n",
)
_MAX_KEPT = 64  # voices' parts, of about 60 kB for each ten seconds of speech


@dataclass(frozen=True, slots=True, eq=False)
class VoicePrompt:
    """Hold one speaker's transcript and codes, integers [K, T]; both may be empty."""

    text: str
    codes: Tensor


class PromptBuilder:
    """Turn messages into columns for one model."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        num_codebooks: int,
        codebook_size: int,
        like_reference: bool = False,
    ) -> None:
        """Build for a model's sizes.

        `like_reference`: spellings of special tokens in texts are tokens, as in the public code.
        """
        self.tokenizer, self._like_reference = tokenizer, like_reference
        self.num_codebooks, self.codebook_size = num_codebooks, codebook_size

    def system(self, voices: Sequence[VoicePrompt] = ()) -> Tensor:
        """Return the columns of the system message, the same for every text of these voices."""
        start, end = self._own("<|im_start|>system\n"), self._own("<|im_end|>\n")
        if not voices:
            return torch.cat([start, self._own(_PLAIN_SYSTEM), end], dim=1)
        texts = "\n".join(  # a transcript that has no tag anywhere gets its speaker's
            voice.text if SPEAKER_TAG.search(voice.text) else f"<|speaker:{i}|>{voice.text}"
            for i, voice in enumerate(voices)
        )
        before, between = _VOICE_SYSTEM
        parts = [start, self._own(before), self._user(texts), self._own(between)]
        parts += [self.codes(voice.codes) for voice in voices]
        return torch.cat([*parts, end], dim=1)

    def turn(self, text: str) -> Tensor:
        """Return the columns of a user's text and of the opened answer to it."""
        end, answer = self._own("<|im_end|>\n"), self._own("<|im_start|>assistant\n<|voice|>")
        return torch.cat([self._own("<|im_start|>user\n"), self._user(text), end, answer], dim=1)

    def answer(self, codes: Tensor) -> Tensor:
        """Return the columns of spoken codes [K, T] and the end of the open message."""
        return torch.cat([self.codes(codes), self._own("<|im_end|>\n")], dim=1)

    def codes(self, codes: Tensor) -> Tensor:
        """Return codes [K, T] as columns; InvalidSpecError for codes that the model has not."""
        codes = codes.to(torch.int64)
        if codes.ndim != 2 or codes.shape[0] != self.num_codebooks:
            raise InvalidSpecError(
                f"Voice codes are {tuple(codes.shape)}; the model takes ({self.num_codebooks}, T)."
            )
        if codes.numel() and not (codes.min() >= 0 and codes.max() < self.codebook_size):
            raise InvalidSpecError(f"Voice codes must lie in 0..{self.codebook_size - 1}.")
        return torch.cat([codes[:1] + self.tokenizer.special.semantic_begin, codes])

    def _own(self, text: str) -> Tensor:
        return self._columns(self.tokenizer.encode(text))

    def _user(self, text: str) -> Tensor:
        live = self._like_reference
        return self._columns(self.tokenizer.encode_user_text(text, live_special_tokens=live))

    def _columns(self, ids: list[int]) -> Tensor:
        columns = torch.zeros(1 + self.num_codebooks, len(ids), dtype=torch.int64)
        columns[0] = torch.tensor(ids, dtype=torch.int64)
        return columns


class PromptParts:
    """Turn voices and texts into columns; safe to use from every thread.

    The voices' parts are kept by a digest of transcripts and codes, least recently used out first.
    It names what the model has made of them, too.
    """

    def __init__(self, builder: PromptBuilder) -> None:
        self._builder = builder
        self._kept: OrderedDict[str, Tensor] = OrderedDict()
        self._lock = threading.Lock()

    def prefix(self, references: Sequence[Reference]) -> tuple[str, Tensor]:
        """Return the voices' part, int64 [1 + K, P], behind its name.

        Raises:
            InvalidSpecError: there are codes that the model has not.
        """
        key = prefix_key(references)
        with self._lock:
            columns = self._kept.get(key)
            if columns is None:
                voices = [
                    VoicePrompt(one.text, torch.from_numpy(one.codes.astype(np.int64)))
                    for one in references
                ]
                columns = self._kept[key] = self._builder.system(voices)
                if len(self._kept) > _MAX_KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
        return key, columns

    def own(self, text: str, history: Sequence[Turn] = ()) -> Tensor:
        """Return the text's part, int64 [1 + K, S], behind what was said before as closed turns.

        Raises:
            InvalidSpecError: there are codes that the model has not.
        """
        parts: list[Tensor] = []
        for said in history:
            codes = torch.from_numpy(said.codes.astype(np.int64))
            parts += [self._builder.turn(said.text), self._builder.answer(codes)]
        return torch.cat([*parts, self._builder.turn(text)], dim=1)

    def forget(self, references: Sequence[Reference]) -> str:
        """Drop the voices' part of a voice that is no more; return its name."""
        key = prefix_key(references)
        with self._lock:
            self._kept.pop(key, None)
        return key


def prefix_key(references: Sequence[Reference]) -> str:
    """Return the name of the voices' part: a digest of all transcripts and codes."""
    digest = hashlib.sha256()
    for reference in references:
        text = reference.text.encode()
        digest.update(f"{len(text)} {reference.codes.dtype} {reference.codes.shape}\n".encode())
        digest.update(text)
        digest.update(np.ascontiguousarray(reference.codes).tobytes())
    return digest.hexdigest()


def prompt_builder(
    model: DualAR, tokenizer: Tokenizer, *, like_reference: bool = False
) -> PromptBuilder:
    return PromptBuilder(
        tokenizer,
        num_codebooks=model.slow.num_codebooks,
        codebook_size=model.slow.codebook_size,
        like_reference=like_reference,
    )
