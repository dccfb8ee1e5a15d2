"""What a document is for is known by roles, and where there are none by classes and ids."""

from __future__ import annotations

import pytest

from synth.books.documents.document_role import document_role
from synth.books.documents.parsing import parse_document
from tests.synth.books.made_epub import PROSE, page


def role_of(inner: str, *, kind: str = "") -> str:
    root = parse_document(page(inner, kind=kind).encode()).root
    return document_role(root, next(root.iter("{*}body")))


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ('class="titlepage"', "titlepage"),
        ('id="title-page"', "titlepage"),
        ('class="element element-type-title-page"', "titlepage"),
        ('class="copyright"', "copyright-page"),
        ('id="copyright-page"', "copyright-page"),
        ('class="dedication"', "dedication"),
        ('class="chapter"', ""),
    ],
)
def test_a_name_says_what_a_page_is(name: str, role: str) -> None:
    assert role_of(f"<div {name}><p>A page.</p></div>") == role


def test_a_long_page_is_not_believed_to_be_what_its_class_says() -> None:
    assert role_of(f'<div class="titlepage"><p>{PROSE * 30}</p></div>') == ""


def test_a_role_wins_over_a_name() -> None:
    inner = '<section epub:type="preface" class="copyright"><p>A page.</p></section>'

    assert role_of(inner, kind="frontmatter") == "preface"
