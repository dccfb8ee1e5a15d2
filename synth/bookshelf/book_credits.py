"""Make the chapters of a book's credits, which stand for no text of the book."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from synth.books.credits import CreditsError, fill_template, names_of, year_of
from synth.books.stored import StoredBookError
from synth.bookshelf.facts import told_of
from synth.bookshelf.script import Passage, SpokenChapter
from synth.jobs.rejections import SubmitRejectedError
from synth.models import BookSource

TITLES = {"opening_credits": "Opening credits", "closing_credits": "Closing credits"}
CREDITS_IDS = frozenset(name.replace("_", "-") for name in TITLES)
ACX = "acx"  # the shop's rules for audiobooks ask for both


@dataclass(frozen=True, slots=True)
class BookCredits:
    """Hold the templates of a book's credits by field, and what their placeholders stand for."""

    templates: Mapping[str, str]
    values: Mapping[str, str]
    narrators: tuple[str, ...]
    language: str

    def chapter(self, field: str, voices: Sequence[str]) -> SpokenChapter | None:
        """Return the chapter of one of the two fields; None where it has no template.

        Args:
            voices: names of the voices that speak, for a book of which nobody named narrators.

        Raises:
            SubmitRejectedError: credits_incomplete.
        """
        template = self.templates.get(field, "")
        if not template:
            return None
        narrators = names_of(self.narrators or tuple(voices), language=self.language)
        try:
            text = fill_template(template, {**self.values, "narrators": narrators})
        except CreditsError as error:
            raise SubmitRejectedError(409, error.code, error.message, attr=field) from error
        passage = Passage(text, self.language)
        return SpokenChapter(field.replace("_", "-"), TITLES[field], (passage,), 0)


def credits_of(book: BookSource) -> BookCredits:
    """Return the credits of a planned book.

    Raises:
        FileNotFoundError, StoredBookError: what was read of it is not there any more.
    """
    templates = {field: book.production.get(field, "") for field in TITLES}
    told = {**told_of(book), **book.metadata} if any(templates.values()) else {}
    language = str(told.get("language", ""))
    values = {
        "title": str(told.get("title", "")),
        "subtitle": str(told.get("subtitle", "")),
        "authors": names_of(tuple(told.get("authors", ())), language=language),
        "publisher": str(told.get("publisher", "")),
        "year": year_of(str(told.get("date", ""))),
    }
    return BookCredits(templates, values, tuple(told.get("narrators", ())), language)


def credits_report(book: BookSource, voices: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the credits as they would be spoken, by field, and what is to be known of them.

    Args:
        voices: names of the voices that would speak.
    """
    shown: dict[str, str] = {}
    warnings: list[str] = []
    try:
        found = credits_of(book)
    except (FileNotFoundError, StoredBookError):
        return {}, []
    for field, title in TITLES.items():
        try:
            chapter = found.chapter(field, voices)
        except SubmitRejectedError as error:
            warnings.append(f"{title}: {error}")
            continue
        if chapter is not None:
            shown[field] = chapter.passages[0].text
        elif book.production.get("preset") == ACX and not found.templates[field]:
            warnings.append(f"The preset acx needs {title.lower()}; add them.")
    return shown, warnings
