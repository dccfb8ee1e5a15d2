"""Documents are read in the charset that they are in, whatever they say; names stay text."""

from __future__ import annotations

import pytest

from synth.books.documents.parsing import decode, parse_document
from synth.books.documents.xhtml import document_of

BODY = "<html><body><p>Caf\u00e9 \u201cun\u201d</p></body></html>"
SAYS = "<?xml version='1.0' encoding='{}'?>"


def read(content: bytes) -> tuple[str, str]:
    parsed = parse_document(content)
    document = document_of(parsed.root, "a.xhtml")
    assert sum(block.source_chars for block in document.blocks) == document.source_chars
    return document.blocks[0].text, parsed.warning


@pytest.mark.parametrize(
    ("says", "written", "warns"),
    [
        ("utf-8", "utf-8", False),
        ("utf-8", "cp1252", True),
        ("iso-8859-1", "cp1252", False),  # quotes are not in it: Windows-1252 is meant
        ("iso-8859-1", "utf-8", True),
        ("windows-1252", "utf-8", True),
        ("us-ascii", "utf-8", True),
        ("utf-16", "utf-8", True),
        ("utf-16", "cp1252", True),
        ("no-such-charset", "utf-8", True),
        ("unicode-escape", "utf-8", True),
        ("utf-7", "cp1252", True),
        ("utf-8", "utf-16-le", False),
        ("iso-8859-1", "utf-16-be", False),
    ],
)
def test_accents_come_back_whatever_charset_a_document_names(
    says: str, written: str, warns: bool
) -> None:
    text, warning = read((SAYS.format(says) + BODY).encode(written))

    assert text == "Caf\u00e9 \u201cun\u201d"
    assert bool(warning) == warns


@pytest.mark.parametrize("charset", ["utf-16-le", "utf-16-be", "utf-16"])
def test_utf_16_is_known_without_a_declaration_and_without_a_mark(charset: str) -> None:
    assert read(f"\n{BODY}".encode(charset))[0] == "Caf\u00e9 \u201cun\u201d"


def test_letters_that_are_escaped_are_read_as_their_charset_says() -> None:
    text = f"{SAYS.format('iso-2022-jp')}<html><body><p>漢字です</p></body></html>"

    assert read(text.encode("iso-2022-jp")) == ("漢字です", "")


def test_a_few_strange_bytes_do_not_spoil_the_other_accents() -> None:
    body = f"<html><body><p>{'é' * 50}</p></body></html>".encode()

    text, warning = decode(body.replace(b"</p>", b"\x93end\x94</p>"))

    assert f"{'é' * 50}\u201cend\u201d" in text
    assert "2 bytes" in warning


@pytest.mark.parametrize("name", ["LT", "AMP", "GT", "lt", "amp"])
def test_names_of_marks_never_become_markup(name: str) -> None:
    sign = {"lt": "<", "gt": ">", "amp": "&"}[name.lower()]
    document = f"<html><body><p>one &{name};b&gt; two</p><p>three</p></body></html>"

    assert read(document.encode()) == (f"one {sign}b> two", "")
