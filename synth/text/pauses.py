"""Name the pauses of a text, and say how long each is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAX_PAUSE_MS = 10_000


@dataclass(frozen=True, slots=True)
class Pauses:
    """Hold how long the silence is that follows a cut, in ms; the defaults are of a calm reader.

    `line` (the end of a line inside a paragraph) and `speaker` (another speaker goes on) are as
    long as `sentence` unless they are given.
    """

    sentence: int = 300
    phrase: int = 150  # a long sentence that was cut at one of its marks
    word: int = 50  # a cut that the text does not ask for: as short as can be joined cleanly
    line: int = 300
    speaker: int = 300
    paragraph: int = 700
    heading: int = 900
    scene: int = 1200  # a line of ornaments, such as * * *, is not spoken but heard as a break

    @classmethod
    def of(cls, lengths: Mapping[str, int]) -> Pauses:
        """Return the pauses with some of them given by name, 0 to `MAX_PAUSE_MS` ms.

        Raises:
            ValueError: there is no such pause, or it is too long.
        """
        for name, length in lengths.items():
            if name not in PAUSE_NAMES or not 0 <= length <= MAX_PAUSE_MS:
                raise ValueError(f"no pause: {name}={length}")
        sentence = lengths.get("sentence", cls().sentence)
        return cls(**{"line": sentence, "speaker": sentence, **lengths})


PAUSE_NAMES = tuple(Pauses.__slots__)
DEFAULT_PAUSES = Pauses()
