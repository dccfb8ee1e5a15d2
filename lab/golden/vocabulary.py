"""Read a checkpoint's tokens where the tokenizer's library is missing: ids, but no encoding.

Most vectors hold their prompts ready, so that a machine with nothing but torch can check them.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from synth.engine.errors import EngineError
from synth.engine.tokenizer import Tokenizer


class NoTokenizerError(EngineError):
    """A case has a text, and the library that turns it into ids is not installed."""

    code: ClassVar[str] = "golden_without_tokenizer"


@dataclass(frozen=True, slots=True)
class AddedToken:
    """Hold an added token as tokenizer.json has it."""

    content: str
    special: bool


class VocabularyFile:
    """Know the ids of a tokenizer.json; `encode` and `decode` raise NoTokenizerError."""

    def __init__(self, path: Path) -> None:
        content = json.loads(path.read_text(encoding="utf-8"))
        self._model: dict[str, int] = content["model"]["vocab"]
        self._added = {
            row["id"]: AddedToken(row["content"], row["special"]) for row in content["added_tokens"]
        }

    def encode(self, text: str, *, add_special_tokens: bool) -> Any:
        """Raise NoTokenizerError."""
        raise NoTokenizerError("The package tokenizers is not installed: no text can be encoded.")

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        """Raise NoTokenizerError."""
        raise NoTokenizerError("The package tokenizers is not installed: no ids can be decoded.")

    def get_vocab(self, *, with_added_tokens: bool) -> Mapping[str, int]:
        """Return every token's id."""
        added = {token.content: token_id for token_id, token in self._added.items()}
        return self._model | (added if with_added_tokens else {})

    def get_added_tokens_decoder(self) -> Mapping[int, AddedToken]:
        """Return the added tokens by id."""
        return self._added

    def token_to_id(self, token: str) -> int | None:
        """Return a token's id, None where there is no such token."""
        return self.get_vocab(with_added_tokens=True).get(token)


def has_library() -> bool:
    """Return whether texts can be encoded here."""
    try:
        return importlib.util.find_spec("tokenizers") is not None
    except ValueError:  # a module that somebody has taken out of the way
        return False


def read_vocabulary(checkpoint_dir: Path) -> Tokenizer | None:
    """Return a tokenizer that knows ids alone, None where the library is there to read it."""
    path = checkpoint_dir / "tokenizer.json"
    return None if has_library() or not path.is_file() else Tokenizer(VocabularyFile(path))
