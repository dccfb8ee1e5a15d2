"""Markdown becomes a book: headings, notes, tables, code, front matter, words of links."""

from __future__ import annotations

import random

import pytest

from synth.books.book import BlockKind
from synth.books.documents.markdown import read_front_matter, read_markdown
from synth.books.plan import plan_book
from tests.synth.books_text.blocks import assert_complete, block_of, texts, with_role

SOURCE = """\
---
title: "The Clock"
author: [Jane Doe, John Roe]
lang: en-GB
draft: true
---

# Part One

## Chapter 1 {#c1}

It *was* late[^1], see [the site](http://x.example/secret) and
`wound` it.

![A clock](clock.png)

```python
print("never")
```

1. one
2. two

| who  | when |
|------|------|
| Jane | noon |

***

Chapter 2
---------

End <b>raw</b> &amp; done.<script>alert(1)</script>

[^1]: The note's *words*.
"""
BOOK = read_markdown(SOURCE.encode(), "clock.md")


def test_front_matter_says_what_the_book_is() -> None:
    assert BOOK.metadata.title == "The Clock"
    assert BOOK.metadata.authors == ("Jane Doe", "John Roe")
    assert BOOK.metadata.language == "en-GB"
    assert texts(BOOK, BlockKind.FURNITURE, role="metadata")[0].startswith('title: "The Clock"')


def test_headings_make_the_contents() -> None:
    assert [(entry.title, entry.level) for entry in BOOK.toc] == [
        ("Part One", 1),
        ("Chapter 1", 2),
        ("Chapter 2", 2),
    ]


def test_words_of_links_are_read_and_addresses_are_not() -> None:
    assert block_of(BOOK, "It was").text == "It was late, see the site and wound it."
    assert not any("secret" in block.text for _, block in BOOK.blocks())


def test_note_is_reached_from_its_mark() -> None:
    note = block_of(BOOK, "The note's words.")

    assert note.kind is BlockKind.NOTE
    assert block_of(BOOK, "It was").note_marks == (f"clock.md#{note.anchors[0]}",)


def test_code_pictures_and_tables_keep_their_kinds() -> None:
    assert with_role(BOOK, "code") == ['print("never")']
    assert texts(BOOK, BlockKind.ALT_TEXT) == ["A clock"]
    assert texts(BOOK, BlockKind.TABLE_ROW)[-1] == "Jane, noon"
    assert texts(BOOK, BlockKind.LIST_ITEM) == ["1. one", "2. two"]


def test_raw_markup_leaves_its_words_and_scripts_are_silent() -> None:
    assert texts(BOOK, BlockKind.PARAGRAPH)[-1] == "End raw & done."
    assert block_of(BOOK, "alert").kind is BlockKind.FURNITURE


@pytest.mark.parametrize(
    ("front", "authors"),
    [
        ("author:\n  - Jane Doe\n  - name: John Roe\n", ("Jane Doe", "John Roe")),
        ("author: Jane Doe; John Roe", ("Jane Doe", "John Roe")),
        ("authors: 'Doe, Jane'", ("Doe, Jane",)),
        ("other:\n  author: Nobody\n", ()),
        ("author: |\n", ()),
        ("- - -\n: :\n[", ()),
    ],
)
def test_simple_front_matter_is_read_and_deeper_one_left_alone(
    front: str, authors: tuple[str, ...]
) -> None:
    assert read_front_matter(front).authors == authors


@pytest.mark.parametrize("seed", range(20))
def test_every_word_of_any_markdown_is_in_a_block(seed: int) -> None:
    chance = random.Random(seed)
    words = [f"word{number}x" for number in range(60)]
    marks = ["# ", "## ", "", "", "> ", "- ", "1. ", "* ", "    ", "| ", "**", "`", "[^1]: ", "\t"]
    source = "".join(
        chance.choice(marks) + word + chance.choice([" ", "\n", "\n\n", "** ", "` ", " | ", "  \n"])
        for word in words
    )

    book = read_markdown(source.encode(), "any.md")

    assert_complete(book)
    held = " ".join(block.text for _, block in book.blocks())
    assert [word for word in words if word not in held] == []


@pytest.mark.parametrize(
    ("text", "title", "chapters"),
    [
        ("# The Bell\n\n## One\n\nA word.\n\n## Two\n\nA word.\n", "The Bell", ["One", "Two"]),
        ("---\ntitle: Other\n---\n# The Bell\n\n## One\n\nA word.\n\n## Two\n\nB.\n", "Other",
         ["One", "Two"]),
        ("The Bell\n===\n\nOne\n---\n\nA word.\n\nTwo\n---\n\nA word.\n", "The Bell",
         ["One", "Two"]),
        ("# One\n\nA word.\n\n# Two\n\nA word.\n", "a", ["One", "Two"]),
        ("# Chapter 1\n\n## A\n\nA word.\n\n## B\n\nA word.\n", "a", ["Chapter 1", "B"]),
        ("# The Bell\n\nIt was late in the year.\n\n## One\n\nA.\n\n## Two\n\nB.\n",
         "The Bell", ["The Bell", "One", "Two"]),
    ],
)  # fmt: skip
def test_lone_heading_above_the_others_is_the_title(
    text: str, title: str, chapters: list[str]
) -> None:
    plan = plan_book(read_markdown(text.encode(), "a.md"))

    assert plan.metadata.title == title
    assert [chapter.title for chapter in plan.included] == chapters
    if title == "The Bell":
        assert {chapter.parents for chapter in plan.included} == {()}
