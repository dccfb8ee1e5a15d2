"""Plan a book: its chapters, what of them is spoken, what is skipped and why, and how long it is.

Every non-blank character of the book is either spoken or skipped for a reason; the sum is checked
whenever a plan is made or edited.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from synth.books.book import Block, BlockKind, Book, Loss, Metadata, Place, Placed
from synth.books.chapters import Section, find_sections, is_dedication
from synth.books.documents.notes import full_mark
from synth.books.furnishings import find_furnishings, reads_as_sentence, warnings_of
from synth.books.rules import CHARS_PER_SECOND, Notes, Rules, SkipReason, block_reason
from synth.text.normalise import is_speakable

MAX_WARNINGS = 300
_EXCERPT_CHARS = 120
_MAX_TITLE_LINES_CHARS = 400


class PlanIncompleteError(Exception):
    """The characters of a plan are not those of its book: a mistake of ours."""


@dataclass(frozen=True, slots=True)
class PlannedBlock:
    """Hold a block, the document that it is from, and why it is skipped; None: it is spoken.

    `usual` is why it would be skipped, had nobody included it.
    """

    block: Block
    path: str
    reason: SkipReason | None
    usual: SkipReason | None = None

    @property
    def can_be_spoken(self) -> bool:
        return self.block.kind is not BlockKind.BREAK and is_speakable(self.block.text)


@dataclass(frozen=True, slots=True)
class PlannedChapter:
    """Hold a chapter.

    `id` stays the same while the file is the same, whatever is edited. `reason` says why a chapter
    is not included. `voice` is empty for the book's; `parents` are the parts that it is in.
    """

    id: str
    title: str
    level: int
    included: bool
    reason: SkipReason | None
    language: str
    blocks: tuple[PlannedBlock, ...]
    parents: tuple[str, ...] = ()
    voice: str = ""

    def spoken(self) -> Iterator[Block]:
        """Yield the blocks that are spoken, in order."""
        if self.included:
            yield from (planned.block for planned in self.blocks if planned.reason is None)

    @property
    def beginning(self) -> str:
        """Return how the chapter's texts begin, for somebody to know it by."""
        texts = (p.block.text for p in self.blocks if p.block.text and p.can_be_spoken)
        return " ".join(itertools.islice(texts, 3))[:_EXCERPT_CHARS]

    @property
    def source_chars(self) -> int:
        return sum(planned.block.source_chars for planned in self.blocks)

    @property
    def spoken_source_chars(self) -> int:
        return sum(block.source_chars for block in self.spoken())

    def reason_of(self, planned: PlannedBlock) -> SkipReason | None:
        """Return why a block of the chapter is not spoken; None if it is."""
        if self.included or planned.reason is not None:
            return planned.reason
        return self.reason or SkipReason.EXCLUDED


@dataclass(frozen=True, slots=True)
class Plan:
    """Hold the plan of a book."""

    metadata: Metadata
    rules: Rules
    chapters: tuple[PlannedChapter, ...]
    source_chars: int
    warnings: tuple[str, ...] = ()
    chars_per_second: float = CHARS_PER_SECOND
    losses: tuple[Loss, ...] = ()

    @property
    def included(self) -> tuple[PlannedChapter, ...]:
        return tuple(chapter for chapter in self.chapters if chapter.included)

    @property
    def spoken_source_chars(self) -> int:
        return sum(chapter.spoken_source_chars for chapter in self.chapters)

    @property
    def characters(self) -> int:
        """Return the characters of all that is spoken, blanks counted."""
        return sum(len(block.text) for chapter in self.included for block in chapter.spoken())

    @property
    def seconds(self) -> float:
        return self.characters / self.chars_per_second

    def skipped(self) -> dict[SkipReason, int]:
        """Return the non-blank characters of the book that are not spoken, by reason."""
        found: Counter[SkipReason] = Counter()
        for chapter in self.chapters:
            for planned in chapter.blocks:
                if reason := chapter.reason_of(planned):
                    found[reason] += planned.block.source_chars
        return dict(found)

    def check(self) -> None:
        """Pass if every character of the book is spoken, or skipped for a reason.

        Raises:
            PlanIncompleteError: with the two sums.
        """
        accounted = self.spoken_source_chars + sum(self.skipped().values())
        if accounted != self.source_chars:
            raise PlanIncompleteError(
                f"the book has {self.source_chars} characters, the plan accounts for {accounted}"
            )

    def to_json(self) -> dict[str, Any]:
        """Return the plan as what `json.dumps` takes, without the texts that are spoken."""
        skipped = self.skipped()
        spoken = self.spoken_source_chars
        rows = list(self._skipped_json())
        reasons = dict.fromkeys([*map(str, skipped), *(row["reason"] for row in rows)])
        return {
            "title": self.metadata.title,
            "authors": list(self.metadata.authors),
            "language": self.metadata.language,
            "rules": {name: str(getattr(self.rules, name)) for name in Rules.__slots__},
            "chapters": [_chapter_json(n, c, self) for n, c in enumerate(self.chapters)],
            "totals": {
                "chapters": len(self.included),
                "characters": self.characters,
                "seconds": round(self.seconds, 1),
                "hours": round(self.seconds / 3600, 2),
            },
            "completeness": {
                "source_chars": self.source_chars,
                "spoken": spoken,
                "skipped": {str(reason): count for reason, count in skipped.items()},
                "missing": list(map(dataclasses.asdict, self.losses)),
                "is_complete": not self.losses
                and spoken + sum(skipped.values()) == self.source_chars,
            },
            "skipped": rows,
            "reasons": {reason: SkipReason(reason).sentence for reason in reasons},
            "warnings": list(self.warnings),
        }

    def _skipped_json(self) -> Iterator[dict[str, Any]]:
        """Yield what is skipped in chapters that are spoken, or was, block by block."""
        for chapter in self.included:
            for index, planned in enumerate(chapter.blocks):
                if reason := planned.reason or planned.usual:
                    yield {
                        "chapter": chapter.id,
                        "block": index,
                        "included": planned.reason is None,
                        "can_be_included": planned.can_be_spoken,
                        "reason": str(reason),
                        "kind": str(planned.block.kind),
                        "source_chars": planned.block.source_chars,
                        "text": planned.block.text[:_EXCERPT_CHARS],
                    }


def _chapter_json(index: int, chapter: PlannedChapter, plan: Plan) -> dict[str, Any]:
    characters = sum(len(block.text) for block in chapter.spoken())
    return {
        "index": index,
        "id": chapter.id,
        "title": chapter.title,
        "level": chapter.level,
        "parts": list(chapter.parents),
        "included": chapter.included,
        "reason": str(chapter.reason) if chapter.reason and not chapter.included else None,
        "language": chapter.language,
        "voice": chapter.voice,
        "characters": characters,
        "seconds": round(characters / plan.chars_per_second, 1),
        "source_chars": chapter.source_chars,
        "blocks": len(chapter.blocks),
        "beginning": chapter.beginning,
        "speakers": sorted({block.speaker for block in chapter.spoken() if block.speaker}),
    }


def plan_book(
    book: Book, rules: Rules | None = None, *, chars_per_second: float = CHARS_PER_SECOND
) -> Plan:
    """Plan a book by rules; without any, by the usual ones.

    Args:
        chars_per_second: of the voice, blanks counted; more than 0.

    Raises:
        PlanIncompleteError: a reader or this function lost a character.
    """
    rules = rules or Rules()
    sections, warnings = find_sections(book)
    if rules.notes is not Notes.SKIP:
        move_notes(book, sections, at_end=rules.notes is Notes.END)
    chapters = tuple(_chapters(book, sections, rules, find_furnishings(book)))
    plan = Plan(
        book.metadata, rules, chapters, book.source_chars, (), chars_per_second, book.losses
    )
    shown = [*book.warnings, *warnings, *warnings_of(plan)]
    if len(shown) > MAX_WARNINGS:
        shown = [*shown[:MAX_WARNINGS], f"{len(shown) - MAX_WARNINGS} more warnings are not shown."]
    plan = replace(plan, warnings=tuple(shown))
    plan.check()
    return plan


def _chapters(
    book: Book, sections: list[Section], rules: Rules, furnishings: dict[Place, SkipReason]
) -> Iterator[PlannedChapter]:
    has_begun = False
    title = book.metadata.title.casefold()
    seen: Counter[str] = Counter()
    for section in sections:
        first = section.blocks[0]
        key = f"{book.documents[first.document].path}\0{first.place}"
        seen[key] += 1
        key = key if seen[key] == 1 else f"{key}\0{seen[key]}"
        reason = section.reason
        # What is left out as a whole is for one reason.
        others = furnishings if reason is None else {}
        blocks = tuple(
            PlannedBlock(
                p.block,
                book.documents[p.document].path,
                _block_reason(p, section, rules) or others.get(p.key),
            )
            for p in section.blocks
        )
        if reason is None and not has_begun and _is_front_page(blocks):
            reason = SkipReason.TITLE_PAGE
        if reason is None and all(planned.reason is not None for planned in blocks):
            reason = _common_reason(blocks)
        has_begun = has_begun or reason is None
        languages: Counter[str] = Counter()
        for p in section.blocks:
            language = p.block.language or book.documents[p.document].language
            languages[language] += p.block.source_chars
        yield PlannedChapter(
            id=f"c{hashlib.sha256(key.encode('utf-8', 'replace')).hexdigest()[:10]}",
            title=section.title,
            level=section.level,
            included=reason is None,
            reason=reason,
            language=languages.most_common(1)[0][0] or book.metadata.language,
            blocks=blocks,
            parents=tuple(part for part in section.parents if part.casefold() != title),
        )


def _is_front_page(blocks: tuple[PlannedBlock, ...]) -> bool:
    """Say whether all there is besides an imprint are the lines of a title page."""
    rest = [planned.block for planned in blocks if planned.reason is None]
    has_imprint = any(planned.reason is SkipReason.LICENCE for planned in blocks)
    if not rest or not has_imprint or sum(b.source_chars for b in rest) > _MAX_TITLE_LINES_CHARS:
        return False
    return not any(reads_as_sentence(b.text) or is_dedication(b.text) for b in rest)


def _common_reason(blocks: tuple[PlannedBlock, ...]) -> SkipReason:
    """Return why a chapter is left out of which each block is: the reason of most of its text."""
    counts: Counter[SkipReason] = Counter()
    for planned in blocks:
        if planned.reason is not None and planned.can_be_spoken:
            counts[planned.reason] += planned.block.source_chars
    return counts.most_common(1)[0][0] if counts else SkipReason.EMPTY


def _block_reason(placed: Placed, section: Section, rules: Rules) -> SkipReason | None:
    """Return why a block is skipped; a note that stands where it is spoken is not."""
    reason = block_reason(placed.block, rules)
    if reason is None and placed.block.kind is BlockKind.NOTE:
        # The notes of a chapter of notes are spoken where somebody includes it.
        is_spoken = rules.notes is not Notes.SKIP or section.reason is SkipReason.NOTE
        return None if is_spoken else SkipReason.NOTE
    return reason


def move_notes(book: Book, sections: list[Section], *, at_end: bool) -> None:
    """Move each note, in place, to the first spoken block that refers to it.

    A note that nothing refers to stays where it is. A chapter that held only notes goes away.
    """
    bodies: dict[str, list[Placed]] = {}  # the blocks of each note by "path#anchor"
    for placed in (placed for section in sections for placed in section.blocks):
        if placed.block.kind is BlockKind.NOTE:
            path = book.documents[placed.document].path
            for anchor in placed.block.anchors:
                bodies.setdefault(f"{path}#{anchor}", []).append(placed)
    moved: set[Place] = set()
    followed: dict[Place, list[Placed]] = {}
    for placed in (p for one in sections if one.reason is None for p in one.blocks):
        if placed.block.kind is BlockKind.NOTE:
            continue
        path = book.documents[placed.document].path
        for mark in placed.block.note_marks:
            for note in bodies.get(full_mark(path, mark), ()):
                if note.key not in moved:
                    moved.add(note.key)
                    followed.setdefault(placed.key, []).append(note)
    for section in sections:
        blocks: list[Placed] = []
        last: list[Placed] = []
        for placed in section.blocks:
            if placed.key not in moved:
                blocks.append(placed)
                (last if at_end else blocks).extend(followed.get(placed.key, ()))
        section.blocks = [*blocks, *last]
    sections[:] = [section for section in sections if section.blocks]
