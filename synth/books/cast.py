"""Say who speaks what of a book: the narrator, its dialogue, its characters, other languages."""

from __future__ import annotations

import enum
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


class RoleKind(enum.StrEnum):
    """Name the kinds of roles, the one that yields to all others first."""

    NARRATOR = "narrator"
    DIALOGUE = "dialogue"
    LANGUAGE = "language"
    CHARACTER = "character"


@dataclass(frozen=True, slots=True)
class Role:
    """Hold one part that is spoken; `name` is a character's name or a language's tag."""

    kind: RoleKind
    name: str = ""

    @property
    def label(self) -> str:
        """Return what lists call it."""
        return self.name or str(self.kind)


NARRATOR = Role(RoleKind.NARRATOR)
DIALOGUE = Role(RoleKind.DIALOGUE)


@dataclass(frozen=True, slots=True)
class Casting:
    """Hold who speaks beside the narrator; voices are ids or names, as they were given.

    `characters` are by the names that were given, `languages` by tags in their usual spelling.
    """

    dialogue_voice: str = ""
    characters: Mapping[str, str] = field(default_factory=dict)
    languages: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Casting:
        """Return the casting that a request gave, and that was checked then."""
        detects = stored.get("dialogue") == "detect"
        return cls(
            dialogue_voice=stored.get("dialogue_voice", "") if detects else "",
            characters=dict(stored.get("characters", {})),
            languages=dict(stored.get("languages", {})),
        )

    @property
    def detects_dialogue(self) -> bool:
        """Return whether what persons say in prose has a voice of its own."""
        return bool(self.dialogue_voice)

    def character(self, name: str) -> Role | None:
        """Return the role of a character, by its name in whatever case; None without a voice."""
        folded = fold_name(name)
        found = (given for given in self.characters if fold_name(given) == folded)
        given = next(found, None) if folded else None
        return None if given is None else Role(RoleKind.CHARACTER, given)

    def language(self, tag: str) -> Role | None:
        """Return the role of a language, by the longest tag that begins it; None without one."""
        spelled = tag.replace("_", "-").lower()
        fitting = [one for one in self.languages if _begins(spelled, one.lower())]
        return Role(RoleKind.LANGUAGE, max(fitting, key=len)) if fitting else None

    def voices(self) -> Iterator[tuple[Role, str]]:
        """Yield every role with its voice."""
        if self.dialogue_voice:
            yield DIALOGUE, self.dialogue_voice
        for name, voice in self.characters.items():
            yield Role(RoleKind.CHARACTER, name), voice
        for tag, voice in self.languages.items():
            yield Role(RoleKind.LANGUAGE, tag), voice


def fold_name(name: str) -> str:
    """Return a name without what differs between a list of persons and their speeches."""
    folded = unicodedata.normalize("NFC", name).casefold()
    return " ".join(folded.split()).rstrip(" .:")


def _begins(tag: str, start: str) -> bool:
    return tag == start or tag.startswith(f"{start}-")
