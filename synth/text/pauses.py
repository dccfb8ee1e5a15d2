"""Name the pauses of a text, and say how long each is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAX_PAUSE_MS = 10_000


@dataclass(frozen=True, slots=True)
class Pauses:
    """Hold how long the silence is that follows a cut, in ms; the defaults are of a calm reader.

    `line` (the end of a line inside a paragraph) and `speaker` (another speaker goes on) are as
    long as `sentence` unless they are given. `chapter` is of books alone.
    """

    sentence: int = 300
    phrase: int = 150  # a long sentence that was cut at one of its marks
    word: int = 50  # a cut that the text does not ask for: as short as can be joined cleanly
    line: int = 300
    speaker: int = 300
    paragraph: int = 700
    heading: int = 900
    scene: int = 1200  # a line of ornaments, such as * * *, is not spoken but heard as a break
    chapter: int = 2000  # what players take for the end of a chapter, and not for a fault

    @classmethod
    def of(cls, lengths: Mapping[str, int]) -> Pauses:
        """Return the pauses with some of them given by name, 0 to `MAX_PAUSE_MS` ms.

        Raises:
            ValueError: there is no such pause, or it is too long.
        """
        for name, length in lengths.items():
            if name not in BOOK_PAUSE_NAMES or not 0 <= length <= MAX_PAUSE_MS:
                raise ValueError(f"no pause: {name}={length}")
        sentence = lengths.get("sentence", cls().sentence)
        return cls(**{"line": sentence, "speaker": sentence, **lengths})


BOOK_PAUSE_NAMES = tuple(Pauses.__slots__)
PAUSE_NAMES = tuple(name for name in BOOK_PAUSE_NAMES if name != "chapter")
DEFAULT_PAUSES = Pauses()
# Kinds of pauses as digits, the shorter ones first; 0 is none. A text that is cut with these in
# place of lengths says of each pause why it is there, so that its length can be changed later.
_KINDS = ("word", "phrase", "sentence", "line", "speaker", "paragraph", "heading", "scene",
          "chapter")  # fmt: skip
PAUSE_KINDS = Pauses(**{name: kind for kind, name in enumerate(_KINDS, 1)})


def pause_lengths(pauses: Pauses) -> tuple[int, ...]:
    """Return the length in ms of each kind, at the place of its digit."""
    return (0, *(getattr(pauses, name) for name in _KINDS))
