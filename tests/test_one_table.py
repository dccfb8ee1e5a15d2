"""One table for each axis: a format's name stands in one source file, and all lists follow it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pytest

from synth.formats import BOOK_FILES, BOOK_FORMATS, FORMATS, BookFileFormat, Writer

PROJECT = Path(__file__).resolve().parent.parent
SOURCES = ("ttsweb", "voices", "synth", "workers", "contrib")
TABLE = "synth/formats.py"
# What strangers upload is decoded by codecs chosen one by one, whatever files we write.
DECODERS = "workers/audio/clip_child.py"


def files_with(literal: str) -> list[str]:
    """Return the source files, but migrations, in which a text stands as a whole literal."""
    return [
        str(path.relative_to(PROJECT))
        for folder in SOURCES
        for path in sorted((PROJECT / folder).rglob("*.py"))
        if "migrations" not in path.parts
        and any(
            isinstance(node, ast.Constant) and node.value == literal
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        )
    ]


def test_name_of_a_format_stands_in_one_source_file() -> None:
    assert files_with("opus") == [TABLE, DECODERS]


def test_type_checkers_know_the_formats_of_a_books_files() -> None:
    assert get_args(BookFileFormat) == tuple(BOOK_FILES)


@pytest.mark.parametrize("name", BOOK_FORMATS)
def test_each_row_says_how_its_files_are_written(name: str) -> None:
    form = BOOK_FORMATS[name]
    assert form.name == name
    assert bool(form.container and form.codec) or form.writer != Writer.CODEC
    assert (form.spliced_from in FORMATS) == (form.writer == Writer.SPLICED)
    assert form.bit_rates is None or form.bit_rates.low <= form.bit_rates.usual <= (
        form.bit_rates.high
    )
