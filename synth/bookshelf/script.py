"""Say what of a planned book is spoken: chapters with their passages, roles and voices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from synth.books.cast import Casting
from synth.books.plan_text import Passage as Passage


@dataclass(frozen=True, slots=True)
class SpokenChapter:
    """Hold one chapter as it is to be spoken.

    `source_chars` are the non-blank characters of the book that it stands for; none are those of
    credits. `voice` is an id or a name, and empty for the book's.
    """

    id: str
    title: str
    passages: tuple[Passage, ...]
    source_chars: int
    voice: str = ""


@dataclass(frozen=True, slots=True)
class Script:
    """Hold what of a book is spoken, and how many of its characters are skipped, by reason.

    `spine_chars` are the non-blank characters of all that the book has in its order of reading.
    """

    chapters: tuple[SpokenChapter, ...]
    spine_chars: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    casting: Casting = field(default_factory=Casting)

    @property
    def is_complete(self) -> bool:
        """Return whether every character is in a chapter or skipped for a reason."""
        spoken = sum(chapter.source_chars for chapter in self.chapters)
        return spoken + sum(self.skipped.values()) == self.spine_chars
