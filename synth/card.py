"""Read a checkpoint's card: what the model is, what it can do, and how it likes to be asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from synth.contract import HISTORY, TEMPERATURE, TOP_K, TOP_P, Limits, Sampling

CARD_NAME = "card.json"
MAX_CARD_BYTES = 100_000
_DEFAULTS = Sampling()  # the engine's own, so that a checkpoint without a card has them too


class CardError(Exception):
    """A card is there and cannot be used; the text names the file, the field and the remedy."""


@dataclass(frozen=True, slots=True)
class Card:
    """Hold what a checkpoint says of itself; the defaults are those of a folder without a card.

    `speaks` is False for weights that make noise, such as random ones. `segment_chars` is the most
    characters of one segment, `history` the most earlier segments that a segment may be rendered
    after, and how many that are in books where nobody says a number. Sampling values are used where
    a job gives none. `quality_screen` is False where takes are not to be judged, since no take of
    random weights is any good.
    """

    name: str
    licence: str = "not declared"
    speaks: bool = True
    description: str = ""
    languages: tuple[str, ...] = ()
    segment_chars: int = 300
    history: int = 0
    temperature: float = _DEFAULTS.temperature
    top_p: float = _DEFAULTS.top_p
    top_k: int = _DEFAULTS.top_k
    quality_screen: bool = True


def read_card(folder: Path) -> Card:
    """Return the card of a checkpoint folder, read again only when the file has changed.

    A web host needs no checkpoint: without the folder or the file the defaults are returned.

    Raises:
        CardError: the file cannot be read, is not a JSON object, or a field is unknown, missing
            (`name` and `licence` are required), of the wrong type or out of range.
    """
    path = folder / CARD_NAME
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return Card(name=folder.name)
    except OSError as error:
        raise CardError(f"{path} cannot be read: {error.strerror}.") from error
    return _read(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=16)
def _read(path: Path, modified_ns: int, size: int) -> Card:
    """Parse one state of the file; the arguments after `path` are the cache's key alone."""
    if size > MAX_CARD_BYTES:
        raise CardError(f"{path} has {size} bytes; a card may have at most {MAX_CARD_BYTES}.")
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CardError(f"{path} cannot be read as JSON: {error}.") from error
    if not isinstance(given, dict):
        raise CardError(f"{path} must contain one JSON object.")
    unknown = sorted(set(given) - set(Card.__slots__))
    if unknown:
        known = ", ".join(Card.__slots__)
        raise CardError(
            f"{path}: there is no field {unknown[0]!r}; the allowed fields are {known}."
        )
    for name in ("name", "licence"):
        if name not in given:
            raise CardError(f"{path}: the field {name!r} is missing.")
    for name, (holds, expected) in _FIELDS.items():
        if name in given and not holds(given[name]):
            raise CardError(f"{path}: {name} is {given[name]!r}; it must be {expected}.")
    return Card(**given | {"languages": tuple(given.get("languages", ()))})


# What a field's value must be, and how that is said.
_Check = tuple[Callable[[Any], bool], str]


def _text(limit: int) -> _Check:
    return (
        lambda value: isinstance(value, str) and value.strip() != "" and len(value) <= limit,
        f"1 to {limit} letters",
    )


def _number(limits: Limits) -> _Check:
    kinds = int if limits.whole else (int, float)
    return (
        lambda value: isinstance(value, kinds) and value is not True and limits.holds(value),
        limits.words,
    )


def _are_tags(value: Any) -> bool:
    """Say whether this is a list of language tags such as `en` or `pt-BR`."""
    return isinstance(value, list) and all(
        isinstance(tag, str) and 2 <= len(tag) <= 35 and tag.replace("-", "").isalnum()
        for tag in value
    )


_SWITCH: _Check = (lambda value: isinstance(value, bool), "true or false")
_FIELDS: dict[str, _Check] = {
    "name": _text(100),
    "licence": _text(200),
    "description": _text(5000),
    "speaks": _SWITCH,
    "quality_screen": _SWITCH,
    "languages": (_are_tags, "a list of tags"),
    "segment_chars": _number(Limits(20, 2000, whole=True)),
    "history": _number(HISTORY),
    "temperature": _number(TEMPERATURE),
    "top_p": _number(TOP_P),
    "top_k": _number(TOP_K),
}
