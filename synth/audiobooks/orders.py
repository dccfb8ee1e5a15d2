"""Read the options that a book's row keeps: they make the order of its job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from synth.jobs.rejections import SubmitRejectedError
from synth.models import PRIORITIES, BookSource
from synth.options.job_options import COLUMNS
from synth.options.orders import Order


def order_from(options: Mapping[str, Any]) -> Order:
    """Return the order that stored options make; a book's text is planned by chapters.

    Raises:
        SubmitRejectedError: options_invalid, another release has stored them.
    """
    found = {COLUMNS.get(name, name): value for name, value in options.items()}
    try:
        found["priority"] = PRIORITIES[found["priority"]]
        if "voices" in found:  # JSON has texts for keys
            found["voices"] = {int(speaker): voice for speaker, voice in found["voices"].items()}
        return Order(text="", **found)
    except (KeyError, TypeError) as error:
        raise SubmitRejectedError(
            "options_invalid",
            "The options of this book are no longer valid; upload the book again.",
        ) from error


def order_of(book: BookSource, *, voice: str | None = None) -> Order:
    """Return the order of a book's job; `voice` is the one of speaker 0 in place of the book's."""
    options = dict(book.options)
    if voice is not None and "voices" in options:
        options["voices"] = {**options["voices"], "0": voice}
    elif voice is not None:
        options["voice"] = voice
    return order_from(options)
