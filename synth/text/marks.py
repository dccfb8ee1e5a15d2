"""Name the punctuation that decides where a text may be cut, in all scripts we know of."""

# ruff: noqa: RUF001  # look-alikes of ASCII are what this module is about

from __future__ import annotations

# They end a sentence. Latin and Indic ones do so before a blank, full-width ones anywhere.
SPACED_ENDS = ".!?…।؟۔"
FULL_WIDTH_ENDS = "。！？"
SPACED_CLAUSE_ENDS = ";:"
FULL_WIDTH_CLAUSE_ENDS = "；："
SPACED_COMMAS = ",،"
FULL_WIDTH_COMMAS = "、，"
DASHES = "—–"

SENTENCE_ENDS = SPACED_ENDS + FULL_WIDTH_ENDS
# A line that ends like this is complete: no heading, and not wrapped by its column.
LINE_ENDS = SENTENCE_ENDS + SPACED_CLAUSE_ENDS + FULL_WIDTH_CLAUSE_ENDS
COMMAS = SPACED_COMMAS + FULL_WIDTH_COMMAS

BRACKET_CLOSERS = "」』）)】〉》］]}"  # what can only close; quotes may as well open
CLOSERS = "\"'”’»«›‹" + BRACKET_CLOSERS
