"""Find the columns of a PDF's page, and put its lines into the order in which they are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

_MIN_LINES = 4  # that stand side by side
_MIN_CHARS = 10  # of the lines of a column, in the median; fewer are cells and page numbers
_MIN_WIDTH = 0.18  # of a column, of the width of the text
_MAX_CROSSING = 0.34  # of the lines: heads and titles over all columns
_MIN_GAP = 0.7  # of the height of letters; words of one line stand closer
_MAX_CANDIDATES = 24
_SLACK = 1.0  # points


@dataclass(frozen=True, slots=True)
class Word:
    """Hold a word of a line and its edges, in points."""

    text: str
    left: float
    right: float


@dataclass(frozen=True, slots=True)
class WordLine:
    """Hold the words of one line, their height and the middle of the line, in points."""

    words: tuple[Word, ...]
    middle: float
    height: float

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)

    @property
    def left(self) -> float:
        return self.words[0].left

    @property
    def right(self) -> float:
        return max(word.right for word in self.words)

    def cut(self, place: float) -> tuple[WordLine | None, WordLine | None] | None:
        """Return the parts on both sides of a place; None where words stand over it."""
        left = tuple(word for word in self.words if word.right <= place + _SLACK)
        right = self.words[len(left) :]
        if any(word.left < place - _SLACK for word in right):
            return None
        if left and right and right[0].left - left[-1].right < _MIN_GAP * self.height:
            return None
        return (
            replace(self, words=left) if left else None,
            replace(self, words=right) if right else None,
        )


def in_reading_order(lines: Sequence[WordLine]) -> list[WordLine] | None:
    """Return the lines of all columns, one column after the other; None for a page of one column.

    Lines over all columns part what is above them from what is below. Columns are moved to where
    the first of them begins, so that the edges of their lines can be compared.
    """
    place = _gutter(lines)
    if place is None:
        return None
    ordered: list[WordLine] = []
    lefts: list[WordLine] = []
    rights: list[WordLine] = []
    for line in sorted(lines, key=lambda line: -line.middle):
        parts = line.cut(place)
        if parts is None:
            ordered += _columns(lefts, rights)
            ordered.append(line)
            lefts, rights = [], []
            continue
        lefts += [parts[0]] if parts[0] is not None else []
        rights += [parts[1]] if parts[1] is not None else []
    return ordered + _columns(lefts, rights)


def _columns(lefts: list[WordLine], rights: list[WordLine]) -> list[WordLine]:
    """Return the lines of two columns, each of which may be two itself."""
    first = in_reading_order(lefts) or lefts
    second = in_reading_order(rights) or rights
    if not (first and second):
        return [*first, *second]
    by = min(line.left for line in second) - min(line.left for line in first)
    return [*first, *(_moved(line, by) for line in second)]


def _moved(line: WordLine, by: float) -> WordLine:
    words = tuple(Word(word.text, word.left - by, word.right - by) for word in line.words)
    return replace(line, words=words)


def _gutter(lines: Sequence[WordLine]) -> float | None:
    """Return where the gap between two columns ends, if there are any."""
    if len(lines) < _MIN_LINES:
        return None
    low, high = min(line.left for line in lines), max(line.right for line in lines)
    width = high - low
    starts = Counter(
        round(start)
        for line in lines
        for start in _starts(line)
        if start > low + _MIN_WIDTH * width
    )
    best: tuple[int, float] | None = None
    for start, _ in starts.most_common(_MAX_CANDIDATES):
        place = start - 2.0
        crossing = _count_crossing(lines, place, width)
        if crossing is not None and (best is None or crossing < best[0]):
            best = (crossing, place)
    return None if best is None else best[1]


def _starts(line: WordLine) -> list[float]:
    """Return where a line, or something in it behind a wide gap, begins."""
    found = [line.left]
    for one, other in zip(line.words, line.words[1:], strict=False):
        if other.left - one.right >= _MIN_GAP * line.height:
            found.append(other.left)
    return found


def _count_crossing(lines: Sequence[WordLine], place: float, width: float) -> int | None:
    """Return how many lines stand over a place; None where there are no columns beside it."""
    lefts: list[WordLine] = []
    rights: list[WordLine] = []
    crossing = 0
    for line in lines:
        parts = line.cut(place)
        if parts is None:
            crossing += 1
            continue
        lefts += [parts[0]] if parts[0] is not None else []
        rights += [parts[1]] if parts[1] is not None else []
    if crossing > _MAX_CROSSING * (len(lefts) + len(rights) + crossing):
        return None
    for column, other in ((lefts, rights), (rights, lefts)):
        if len(column) < _MIN_LINES:
            return None
        bottom, top = min(one.middle for one in other), max(one.middle for one in other)
        beside = [one for one in column if bottom - one.height <= one.middle <= top + one.height]
        if len(beside) < _MIN_LINES:
            return None
        if median(len(one.text) for one in beside) < _MIN_CHARS:
            return None
        if median(one.right - one.left for one in beside) < _MIN_WIDTH * width:
            return None
    return crossing
