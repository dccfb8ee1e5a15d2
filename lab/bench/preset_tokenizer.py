"""Make a preset's tokenizer: a token for every byte, and the prompt's special tokens.

In memory it is a class of our own, so that a preset needs no library; its file is for the library,
which gives the same ids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from synth.engine.presets.shapes import Preset

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_NUM_BYTES = 256
# Bytes that the library spells as the letters of Latin-1 they are; the others get letters behind.
_PRINTED = (range(0x21, 0x7F), range(0xA1, 0xAD), range(0xAE, 0x100))


@dataclass(frozen=True, slots=True)
class Encoded:
    """Hold a text's ids."""

    ids: list[int]


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """Hold the spelling of a special token."""

    content: str
    special: bool = True


class ByteTokenizer:
    """Know a preset's vocabulary, as `synth.engine.tokenizer.Backend` says."""

    def __init__(self, preset: Preset) -> None:
        self._special = dict(preset.special_tokens)
        self._pattern = re.compile(f"({'|'.join(map(re.escape, self._special))})")
        letters = _letters()
        self._bytes = sorted(range(_NUM_BYTES), key=letters.__getitem__)  # by id
        self._ids = {byte: token_id for token_id, byte in enumerate(self._bytes)}
        self._vocabulary = {letters[byte]: token_id for byte, token_id in self._ids.items()}

    def encode(self, text: str, *, add_special_tokens: bool) -> Encoded:
        """Return a text's ids, special tokens by their spelling; none is added."""
        ids: list[int] = []
        for index, piece in enumerate(self._pattern.split(text)):
            is_special = index % 2  # what the pattern matched stands between the others
            ids += (
                [self._special[piece]]
                if is_special
                else [self._ids[byte] for byte in piece.encode("utf-8")]
            )
        return Encoded(ids)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Return the text of ids; bytes that are no text become the replacement character."""
        spelled = {token_id: token for token, token_id in self._special.items()}
        special = {} if skip_special_tokens else spelled
        parts = [
            bytes([self._bytes[i]]) if i < _NUM_BYTES else special.get(i, "").encode() for i in ids
        ]
        return b"".join(parts).decode("utf-8", "replace")

    def get_vocab(self, *, with_added_tokens: bool) -> Mapping[str, int]:
        """Return every token's id."""
        return self._vocabulary | (self._special if with_added_tokens else {})

    def get_added_tokens_decoder(self) -> Mapping[int, SpecialToken]:
        """Return the special tokens by id."""
        return {token_id: SpecialToken(token) for token, token_id in self._special.items()}

    def token_to_id(self, token: str) -> int | None:
        """Return a token's id, None where there is no such token."""
        return self._special.get(token, self._vocabulary.get(token))


def make_tokenizer(preset: Preset) -> Tokenizer:
    """Return the library's tokenizer with the special tokens at their published places.

    No letters are merged, so a text takes about four times the positions it takes with the
    published vocabulary.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate(alphabet)} | preset.special_tokens
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in preset.special_tokens]
    )
    return tokenizer


def _letters() -> dict[int, str]:
    """Return the letter by which the library's byte-level vocabulary spells each byte."""
    printed = {byte: chr(byte) for part in _PRINTED for byte in part}
    others = [byte for byte in range(_NUM_BYTES) if byte not in printed]
    return printed | {byte: chr(_NUM_BYTES + place) for place, byte in enumerate(others)}
