"""Prove that a book is whole: each of its characters is spoken, skipped for a reason, or failed."""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from synth.books.book import count_chars
from synth.models import BookSource, RenderJob, Segment
from synth.transitions.takes import TOO_SHORT
from ttsweb.refusals import counted

# Nobody speaks so fast, in whatever writing. The quality screen knows closer bounds for those
# languages that it knows; this one holds where it says nothing, too.
MOST_CHARS_PER_SECOND = 45.0
_ENDED_SEGMENTS = (Segment.Status.FAILED, Segment.Status.CANCELLED)
MOST_NAMED = 100


@dataclass(slots=True)
class ChapterProof:
    """Count what became of a chapter, in non-blank characters of its segments' texts."""

    done_chars: int = 0
    failed_chars: int = 0
    open_chars: int = 0
    segments: int = 0
    short: list[int] = field(default_factory=list)

    @property
    def text_chars(self) -> int:
        return self.done_chars + self.failed_chars + self.open_chars


class Gap(NamedTuple):
    """Say why a book is not whole."""

    code: str
    message: str


def proof_of(book: BookSource) -> dict[str, Any]:
    """Return the proof of a book that was started, as it stands now.

    Two sums are checked, of characters that are no blanks: those of the book are in a chapter or
    skipped for a reason, and those of each chapter's text are in its segments.
    """
    found = _count(book.job_id) if book.job_id is not None else {}
    chapters = [
        _chapter(index, planned, found.get(index, ChapterProof()))
        for index, planned in enumerate(book.started.get("chapters", []))
    ]
    sums = {
        name: sum(chapter[name] for chapter in chapters)
        for name in ("spoken_chars", "failed_chars", "open_chars")
    }
    skipped = book.started.get("skipped", {})
    total = sum(sums.values()) + sum(skipped.values())
    is_balanced = total == book.started.get("spine_chars", 0) and all(
        chapter["is_balanced"] for chapter in chapters
    )
    short = [one for chapter in chapters for one in chapter["short_segments"]]
    is_whole = not (sums["failed_chars"] or sums["open_chars"] or short)
    return {
        "spine_chars": book.started.get("spine_chars", 0),
        **sums,
        "skipped_chars": sum(skipped.values()),
        "skipped": skipped,
        "is_balanced": is_balanced,
        "is_complete": is_balanced and is_whole,
        "short_segments": short[:MOST_NAMED],
        "chapters": chapters,
    }


def gap_of(job: RenderJob) -> Gap | None:
    """Return why a book cannot be called whole, although no segment of its job failed."""
    book = BookSource.objects.filter(job=job.pk).first()
    if book is None:
        return None
    proof = proof_of(book)
    if not proof["is_balanced"]:
        return Gap(
            "book_unbalanced",
            "The segments do not hold exactly the characters of the plan; look at the "
            "book's proof.",
        )
    short = proof["short_segments"]
    if short:
        return Gap(
            "book_segments_short",
            f"{counted(len(short), 'segment')} may be too short for the text, the first "
            f"with the id {short[0]}. Listen to them; render those that are wrong again, "
            "and approve the others.",
        )
    if not proof["is_complete"]:
        return Gap(
            "book_incomplete",
            "Some parts of the book were not spoken; the book's proof lists them.",
        )
    return None


def _chapter(index: int, planned: dict[str, Any], counted: ChapterProof) -> dict[str, Any]:
    """Return a chapter's part; its titles and marks may be characters that the book has not."""
    source = planned["source_chars"]
    failed = min(source, counted.failed_chars)
    still_open = min(source - failed, counted.open_chars)
    if not counted.done_chars:  # what only the source has, such as joiners, is not spoken either
        if counted.open_chars or not counted.segments:
            still_open = source - failed
        else:
            failed = source
    return {
        "id": planned["id"],
        "index": index,
        "title": planned["title"],
        "source_chars": source,
        "text_chars": planned["text_chars"],
        "spoken_chars": source - failed - still_open,
        "failed_chars": failed,
        "open_chars": still_open,
        "segments": counted.segments,
        "short_segments": counted.short[:MOST_NAMED],
        "is_balanced": counted.text_chars == planned["text_chars"]
        and counted.segments == planned["segments"],
    }


def _count(job_id: uuid.UUID) -> dict[int, ChapterProof]:
    """Return what became of each chapter's segments, by the chapter's place."""
    found: dict[int, ChapterProof] = defaultdict(ChapterProof)
    rows = Segment.objects.filter(job=job_id).order_by("pk").values_list(
        "pk", "chapter__index", "text", "spoken_text", "status", "is_hand_picked",
        "take__audio_seconds", "take__quality_flags",
    )  # fmt: skip
    for pk, index, text, spoken_text, status, is_hand_picked, seconds, flags in rows.iterator(
        chunk_size=1000
    ):
        chapter, chars = found[index], count_chars(text)
        chapter.segments += 1
        if status == Segment.Status.DONE and seconds is not None:
            chapter.done_chars += chars
            # A take that cannot hold its text; one that a person chose is taken as good.
            is_short = seconds < count_chars(spoken_text) / MOST_CHARS_PER_SECOND
            if not is_hand_picked and (is_short or TOO_SHORT in (flags or [])):
                chapter.short.append(pk)
        elif status in _ENDED_SEGMENTS:
            chapter.failed_chars += chars
        else:
            chapter.open_chars += chars
    return found
