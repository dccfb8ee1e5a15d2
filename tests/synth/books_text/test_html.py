"""A single HTML file becomes a book: charset, metadata, what frames the page, Gutenberg's own."""

from __future__ import annotations

import random

import pytest

from synth.books.documents.html import read_front_matter, read_html, read_markdown
from synth.books.plan import plan_book
from tests.synth.books_text.blocks import assert_complete, block_of, outline, refusal_of

PAGE = """<!DOCTYPE html><html lang="de"><head><meta charset="{charset}">
<title>The Project Gutenberg eBook of Die Straße, by Jana Müller</title>
<meta name="DC.Publisher" content="Verlag &amp; Söhne"><style>p {{ color: red }}</style></head>
<body><nav>Start | Über uns</nav><header>Netzseite</header><main><h1>Die Straße</h1>
<p>Früh am Morgen<p>ging er<br>fort.<img src="a.png" alt="Eine Straße"><script>x()</script>
<h2>Zwei</h2><aside>Ein Einwurf.</aside></main>
<aside>Mehr Bücher</aside><footer>Impressum</footer></body></html>"""


STREET = [
    "navigation: Start | Über uns",
    "site: furniture|Netzseite",
    "heading|Die Straße",
    "Früh am Morgen",
    "ging er fort.",
    "alt_text|Eine Straße",
    "hidden: furniture|x()",
    "heading|Zwei",
    "Ein Einwurf.",
    "site: furniture|Mehr Bücher",
    "site: furniture|Impressum",
]


@pytest.mark.parametrize("charset", ["utf-8", "iso-8859-1", "utf-16"])
def test_page_is_read_in_its_charset_and_what_frames_it_has_a_role(charset: str) -> None:
    book = read_html(PAGE.format(charset=charset).encode(charset), "a.html")
    found = book.metadata
    assert (found.title, found.authors) == ("Die Straße", ("Jana Müller",))
    assert (found.language, found.publisher) == ("de", "Verlag & Söhne")
    assert outline(book) == STREET
    assert [(entry.title, entry.level) for entry in book.toc] == [("Die Straße", 1), ("Zwei", 2)]
    assert_complete(book)


def test_charset_is_found_where_the_page_names_none() -> None:
    text = "Früh am Morgen ging Élise über die Straße."
    assert outline(read_html(f"<p>{text}".encode("cp1252"), "a.html")) == [text]


OLD_GUTENBERG = """<html><head><title>X</title></head><body><pre>
The Project Gutenberg EBook of Candide, by Voltaire

Title: Candide

Author: Voltaire

Language: French

*** START OF THIS PROJECT GUTENBERG EBOOK CANDIDE ***

Produced by Somebody
</pre><h2>CHAPITRE PREMIER</h2><p>Il y avait en Vestphalie un jeune garçon.</p>
<pre>End of Project Gutenberg's Candide, by Voltaire

*** END OF THIS PROJECT GUTENBERG EBOOK CANDIDE ***</pre><p>License</p></body></html>"""


def test_header_and_licence_of_gutenberg_are_furniture_without_roles_too() -> None:
    book = read_html(OLD_GUTENBERG.encode(), "4650.html")

    assert outline(book)[5:] == [
        "pg-header: furniture|Produced by Somebody",
        "heading|CHAPITRE PREMIER",
        "Il y avait en Vestphalie un jeune garçon.",
        "pg-footer: furniture|End of Project Gutenberg's Candide, by Voltaire",
        "pg-footer: furniture|*** END OF THIS PROJECT GUTENBERG EBOOK CANDIDE ***",
        "pg-footer: furniture|License",
    ]
    assert all(line.startswith("pg-header: furniture|") for line in outline(book)[:5])
    assert (book.metadata.title, book.metadata.language) == ("Candide", "fr")
    assert_complete(book)


def test_entities_are_not_fetched() -> None:
    page = '<!DOCTYPE html [<!ENTITY x SYSTEM "file:///etc/passwd">]><html><p>a &x; b</p></html>'
    book = read_html(page.encode(), "a.html")
    assert not any("root:" in block.text for *_, block in book.blocks())


@pytest.mark.parametrize("page", ["<html><body></body></html>", "<html><img src='a.png'></html>"])
def test_page_without_words_is_refused_as_empty(page: str) -> None:
    assert refusal_of(read_html, page.encode(), "a.html").code == "book_empty"


def test_deeply_nested_page_is_read() -> None:
    book = read_html(("<div>" * 3000 + "deep" + "</div>" * 3000).encode(), "a.html")
    assert "deep" in " ".join(block.text for *_, block in book.blocks())


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


def test_front_matter_and_headings_say_what_the_book_is() -> None:
    found = BOOK.metadata
    assert (found.title, found.authors) == ("The Clock", ("Jane Doe", "John Roe"))
    assert found.language == "en-GB"
    contents = [("Part One", 1), ("Chapter 1", 2), ("Chapter 2", 2)]
    assert [(entry.title, entry.level) for entry in BOOK.toc] == contents


def test_words_of_markdown_are_read_and_addresses_and_scripts_are_not() -> None:
    assert outline(BOOK) == [
        'metadata: furniture|title: "The Clock" author: [Jane Doe, John Roe] lang: en-GB draft: '
        "true",
        "heading|Part One",
        "heading|Chapter 1",
        "It was late, see the site and wound it.",
        "noteref: furniture|[1]",
        "alt_text|A clock",
        'code: verse|print("never")',
        "list_item|1. one",
        "list_item|2. two",
        "table_row|who, when",
        "table_row|Jane, noon",
        "break|",
        "heading|Chapter 2",
        "End raw & done.",
        "hidden: furniture|alert(1)",
        "footnote: note|The note's words.",
    ]
    note = block_of(BOOK, "The note's words.")
    assert block_of(BOOK, "It was").note_marks == (f"clock.md#{note.anchors[0]}",)


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
    held = " ".join(block.text for *_, block in book.blocks())
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
        ("# Chapter 1: The Ox\n\n## A\n\nA word.\n\n## B\n\nA word.\n", "a",
         ["Chapter 1: The Ox", "B"]),
        ("# Prologue\n\n## A\n\nA word.\n\n## B\n\nA word.\n", "a", ["Prologue", "B"]),
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
