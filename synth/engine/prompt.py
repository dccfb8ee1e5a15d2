"""Build prompts: text as ids of the checkpoint's own tokenizer, then columns of ids and codes.

A prompt is int64 [1 + K, S]: row 0 holds token ids, rows 1..K the codes of audio columns and zeros
elsewhere. Every text part is tokenised on its own, so merges never cross a part's edge.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from synth.contract import Reference
from synth.engine.errors import CheckpointError, InvalidSpecError
from synth.engine.model.config import PRODUCT, Compat, SpecialIds
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.prefill import PrefixKeys

SPEAKER_TAG = re.compile(r"<\|speaker:\d+\|>")
_SEMANTIC = re.compile(r"<\|semantic:([0-9]+)\|>")
_SPECIAL_SPELLING = re.compile(r"<\|.*\|>", re.DOTALL)
_USED_TOKENS = ("<|im_start|>", "<|im_end|>", "<|voice|>")


class Backend(Protocol):
    """Know a vocabulary, as the library's tokenizers do; a preset has a small one of its own."""

    def encode(self, text: str, *, add_special_tokens: bool) -> Any:
        """Return an object whose `ids` are the text's, special tokens by their spelling."""
        ...

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Return the text of ids."""
        ...

    def get_vocab(self, *, with_added_tokens: bool) -> Mapping[str, int]:
        """Return every token's id."""
        ...

    def get_added_tokens_decoder(self) -> Mapping[int, Any]:
        """Return the added tokens by id; each has `content` and `special`."""
        ...

    def token_to_id(self, token: str) -> int | None:
        """Return a token's id, None where there is no such token."""
        ...


class Tokenizer:
    """Encode the prompt's own pieces and, apart from them, text that people wrote."""

    def __init__(self, backend: Backend) -> None:
        """Look the special ids up by name; raise CheckpointError when one is missing."""
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
            backend: Backend = Library.from_file(str(path))
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
        ids = [token for piece in self._pieces(text) for token in self.encode(piece)]
        if not self._reserved_ids.isdisjoint(ids):  # a spelling that only normalisation completes
            raise InvalidSpecError(
                "The text contains a reserved token such as <|im_end|>; remove it."
            )
        return ids

    def id_of(self, token: str) -> int | None:
        """Return a token's id, None where the vocabulary has no such token."""
        return self._backend.token_to_id(token)

    def _pieces(self, text: str) -> list[str]:
        """Cut the text behind the first character of every reserved spelling.

        Encoded apart, no piece holds a whole spelling any more, and nothing is lost or added.
        """
        pieces, start = [], 0
        for match in self._reserved.finditer(text):
            pieces.append(text[start : match.start() + 1])
            start = match.start() + 1
        return [*pieces, text[start:]]


def _find_special_ids(backend: Backend) -> SpecialIds:
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
    begin = codes.get(0)
    for code in range(len(codes)):
        if begin is None or codes.get(code) != begin + code:
            raise CheckpointError(
                f"tokenizer.json: <|semantic:{code}|> is missing or not beside the token "
                "before it, so codes would mean other tokens than in training. Download the "
                "checkpoint again."
            )
    first = codes[0]
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
        compat: Compat = PRODUCT,
    ) -> None:
        self.tokenizer, self.compat = tokenizer, compat
        self.num_codebooks, self.codebook_size = num_codebooks, codebook_size

    def system(self, voices: Sequence[VoicePrompt] = ()) -> Tensor:
        """Return the columns of the system message, the same for every text of these voices."""
        start, end = self._own("<|im_start|>system\n"), self._own("<|im_end|>\n")
        if not voices:
            return torch.cat([start, self._own(_PLAIN_SYSTEM), end], dim=1)
        texts = "\n".join(_add_tag(voice.text, i) for i, voice in enumerate(voices))
        before, between = _VOICE_SYSTEM
        parts = [start, self._own(before), self._user(texts), self._own(between)]
        parts += [self.codes(voice.codes) for voice in voices]
        return torch.cat([*parts, end], dim=1)

    def turn(self, text: str) -> Tensor:
        """Return the columns of a user's text and of the opened answer to it."""
        return torch.cat(
            [
                self._own("<|im_start|>user\n"),
                self._user(text),
                self._own("<|im_end|>\n"),
                self._own("<|im_start|>assistant\n<|voice|>"),
            ],
            dim=1,
        )

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
        live = self.compat.live_special_tokens
        return self._columns(self.tokenizer.encode_user_text(text, live_special_tokens=live))

    def _columns(self, ids: list[int]) -> Tensor:
        columns = torch.zeros(1 + self.num_codebooks, len(ids), dtype=torch.int64)
        columns[0] = torch.tensor(ids, dtype=torch.int64)
        return columns


def _add_tag(text: str, speaker: int) -> str:
    """Put the speaker's tag in front, unless the transcript has a tag anywhere already."""
    return text if SPEAKER_TAG.search(text) else f"<|speaker:{speaker}|>{text}"


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


def prompt_builder(model: DualAR, tokenizer: Tokenizer, compat: Compat = PRODUCT) -> PromptBuilder:
    """Return the builder of this model's prompts."""
    return PromptBuilder(
        tokenizer,
        num_codebooks=model.slow.num_codebooks,
        codebook_size=model.slow.codebook_size,
        compat=compat,
    )
