"""Begin the sample of a book: a job of its first chapter, whose takes the whole book uses again."""

from __future__ import annotations

from dataclasses import replace

from synth.api.books.options import order_of
from synth.bookshelf.casting import cast_book
from synth.bookshelf.script import Script, SpokenChapter
from synth.bookshelf.start import (
    ChangedMeanwhileError,
    check_startable,
    read_script,
    write_cast,
)
from synth.jobs.planning import Planner
from synth.jobs.rejections import SubmitRejectedError
from synth.jobs.submit import bind_job
from synth.models import ApiKey, BookSource, RenderJob
from synth.transitions.book_batches import begin_sample

SAMPLE_FORMAT = "mp3"  # every browser plays it, and it has no place for chapters
# What is shorter is a dedication, an epigraph or credits, which say little of a voice.
LEAST_CHARS = 400


def start_sample(book: BookSource, *, api_key: ApiKey | None = None) -> RenderJob | None:
    """Make the job of a planned book's sample; None where somebody was faster or changed the plan.

    Raises:
        SubmitRejectedError: as `start_book` raises them: the book could not be started either.
        KeyLimitError: the API key would have too much in the queue; nothing is kept.
    """
    check_startable(book)
    script = read_script(book)
    if not script.chapters:
        raise SubmitRejectedError(
            409,
            "book_nothing_to_speak",
            "Every chapter of this book is excluded; include at least one.",
        )
    chapter = sample_chapter(script)
    # The file is a sample alone: what the book's own needs of rates and messages is not asked for.
    order = replace(
        order_of(book), format=SAMPLE_FORMAT, bit_rate=None, sample_rate=None, webhook_url=""
    )
    cast = cast_book(replace(script, chapters=(chapter,)), order, Planner(book.owner))
    bind_job(cast.job, api_key=api_key)
    told = {"id": chapter.id, "title": chapter.title, "source_chars": chapter.source_chars}
    try:
        return write_cast(cast, lambda: begin_sample(book, cast.job, told))
    except ChangedMeanwhileError:
        return None


def sample_chapter(script: Script) -> SpokenChapter:
    """Return the first chapter with enough text; where none has, the longest one."""
    long = (one for one in script.chapters if one.source_chars >= LEAST_CHARS)
    return next(long, None) or max(script.chapters, key=lambda one: one.source_chars)
