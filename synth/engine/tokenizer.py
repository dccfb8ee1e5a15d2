"""Turn text into token ids with the checkpoint's own tokenizer, and find its special ids."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from synth.engine.errors import CheckpointError, InvalidSpecError

SPEAKER_TAG = re.compile(r"<\|speaker:\d+\|>")
_SEMANTIC = re.compile(r"<\|semantic:([0-9]+)\|>")
_SPECIAL_SPELLING = re.compile(r"<\|.*\|>", re.DOTALL)
_USED_TOKENS = ("<|im_start|>", "<|im_end|>", "<|voice|>")


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """Hold the ids the engine uses; code i of the first codebook is `semantic_begin + i`."""

    im_end: int
    semantic_begin: int
    semantic_end: int  # the last one, inclusive

    @property
    def num_semantic(self) -> int:
        return self.semantic_end - self.semantic_begin + 1


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
