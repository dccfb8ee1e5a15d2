"""Write into an event's id what a client has been told by then, and read it again.

An id is `status!done.failed.cancelled!D!F!C`; D, F and C list the segments that were seen done,
failed and cancelled, as ranges of indexes in chapters: `0:0-57,59;1:0-3`. That of a batch says the
same of its items, all of them in chapter 0, with one more way to end; that of a batch of books says
of its entries in which state each was seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

MAX_ID_CHARS = 4000  # servers take headers of some 8 kB; what is cut off is told once more
CLOSED = ("done", "failed", "cancelled")  # statuses of segments, in the order of an id's parts
ENDED = ("succeeded", "partial", "failed", "cancelled")  # those of a batch's items
# Those of entries of a batch of books; one that is in none of them has no file yet.
ENTRY_STATES = (
    "importing", "waiting", "sampling", "sampled", "queued", "running", "paused", "succeeded",
    "partial", "failed", "cancelled", "deleted",
)  # fmt: skip
_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?", re.ASCII)

SegmentKey = tuple[int, int]  # chapter, index


class BadEventIdError(ValueError):
    """A `Last-Event-ID` that no event of this job had."""


@dataclass
class Seen:
    """What a client has been told; `kinds`, such as CLOSED, are what is told of its parts."""

    status: str = ""
    counts: tuple[int, ...] = ()
    closed: dict[SegmentKey, str] = field(default_factory=dict)
    kinds: tuple[str, ...] = CLOSED

    def event_id(self, max_chars: int = MAX_ID_CHARS) -> str:
        """Return this as an id; of many gaps only the first ones fit into `max_chars`."""
        parts = [self.status, ".".join(map(str, self.counts))]
        left = max_chars
        for kind in self.kinds:
            keys = sorted(key for key, status in self.closed.items() if status == kind)
            parts.append(_write_ranges(keys, left))
            left -= len(parts[-1])
        return "!".join(parts)

    @classmethod
    def from_event_id(
        cls, text: str, *, max_segments: int, kinds: tuple[str, ...] = CLOSED
    ) -> Seen:
        """Return what an id says.

        Raises:
            BadEventIdError: it is none, or names more segments than the job has.
        """
        parts = text.split("!")
        if len(parts) != 2 + len(kinds) or not re.fullmatch(r"[a-z_]*", parts[0]):
            raise BadEventIdError(text)
        counts = tuple(map(_read_number, parts[1].split("."))) if parts[1] else ()
        seen = cls(parts[0], counts, kinds=kinds)
        for kind, part in zip(kinds, parts[2:], strict=True):
            for key in _read_ranges(part, max_segments - len(seen.closed)):
                seen.closed[key] = kind
        return seen


def _write_ranges(keys: list[SegmentKey], max_chars: int) -> str:
    """Return sorted keys as `0:0-57,59;1:0-3`, with as many ranges as fit."""
    chapters: list[str] = []
    for chapter, group in groupby(keys, key=lambda key: key[0]):
        ranges: list[list[int]] = []
        for _, index in group:
            if ranges and ranges[-1][1] == index - 1:
                ranges[-1][1] = index
            else:
                ranges.append([index, index])
        texts = [f"{low}" if low == high else f"{low}-{high}" for low, high in ranges]
        chapters.append(f"{chapter}:{','.join(texts)}")
    whole = ";".join(chapters)
    if len(whole) <= max_chars:
        return whole
    cut = max(whole.rfind(",", 0, max(0, max_chars)), whole.rfind(";", 0, max(0, max_chars)))
    return whole[: max(0, cut)]


def _read_ranges(text: str, max_keys: int) -> Iterator[SegmentKey]:
    """Yield the keys of ranges; their number is known before one is made."""
    for chapter_text in filter(None, text.split(";")):
        chapter, _, ranges = chapter_text.partition(":")
        for one in ranges.split(","):
            match = _RANGE.fullmatch(one)
            if match is None:
                raise BadEventIdError(text)
            low, high = int(match[1]), int(match[2] or match[1])
            max_keys -= high - low + 1
            if high < low or max_keys < 0:
                raise BadEventIdError(text)
            number = _read_number(chapter)
            yield from ((number, index) for index in range(low, high + 1))


def _read_number(text: str) -> int:
    """Return a small number that is written in digits."""
    if not (text.isascii() and text.isdigit() and len(text) < 8):
        raise BadEventIdError(text)
    return int(text)
