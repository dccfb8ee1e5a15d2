"""A single HTML file becomes a book: charset, metadata, what frames the page, Gutenberg's own."""

from __future__ import annotations

import pytest

from synth.books.book import BlockKind, BookRejectedError
from synth.books.documents.html import read_html
from tests.synth.books_text.blocks import assert_complete, texts, with_role

PAGE = """<!DOCTYPE html><html lang="de"><head><meta charset="{charset}">
<title>The Project Gutenberg eBook of Die Straße, by Jana Müller</title>
<meta name="DC.Publisher" content="Verlag &amp; Söhne"><style>p {{ color: red }}</style></head>
<body><nav>Start | Über uns</nav><header>Netzseite</header><main><h1>Die Straße</h1>
<p>Früh am Morgen<p>ging er<br>fort.<img src="a.png" alt="Eine Straße"><script>x()</script>
<h2>Zwei</h2><aside>Ein Einwurf.</aside></main>
<aside>Mehr Bücher</aside><footer>Impressum</footer></body></html>"""


@pytest.mark.parametrize("charset", ["utf-8", "iso-8859-1", "utf-16"])
def test_page_is_read_in_its_charset(charset: str) -> None:
    book = read_html(PAGE.format(charset=charset).encode(charset), "a.html")

    assert book.metadata.title == "Die Straße"
    assert book.metadata.authors == ("Jana Müller",)
    assert book.metadata.language == "de"
    assert book.metadata.publisher == "Verlag & Söhne"
    assert texts(book, BlockKind.PARAGRAPH, role="") == [
        "Früh am Morgen",
        "ging er fort.",
        "Ein Einwurf.",
    ]
    assert_complete(book)


def test_charset_is_found_where_the_page_names_none() -> None:
    book = read_html("<p>Früh am Morgen ging Élise über die Straße.".encode("cp1252"), "a.html")

    assert texts(book, BlockKind.PARAGRAPH) == ["Früh am Morgen ging Élise über die Straße."]


def test_what_frames_the_page_has_a_role() -> None:
    book = read_html(PAGE.format(charset="utf-8").encode(), "a.html")

    assert with_role(book, "navigation") == ["Start | Über uns"]
    assert with_role(book, "site") == ["Netzseite", "Mehr Bücher", "Impressum"]


def test_headings_make_the_contents_and_pictures_keep_their_words() -> None:
    book = read_html(PAGE.format(charset="utf-8").encode(), "a.html")

    assert [(entry.title, entry.level) for entry in book.toc] == [("Die Straße", 1), ("Zwei", 2)]
    assert texts(book, BlockKind.ALT_TEXT) == ["Eine Straße"]


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

    assert with_role(book, "pg-header")[-1] == "Produced by Somebody"
    assert with_role(book, "pg-footer")[-1] == "License"
    spoken = [b.text for _, b in book.blocks() if b.kind is not BlockKind.FURNITURE]
    assert spoken == ["CHAPITRE PREMIER", "Il y avait en Vestphalie un jeune garçon."]
    assert (book.metadata.title, book.metadata.language) == ("Candide", "fr")
    assert_complete(book)


def test_entities_are_not_fetched() -> None:
    page = '<!DOCTYPE html [<!ENTITY x SYSTEM "file:///etc/passwd">]><html><p>a &x; b</p></html>'

    book = read_html(page.encode(), "a.html")

    assert not any("root:" in block.text for _, block in book.blocks())


@pytest.mark.parametrize("page", ["<html><body></body></html>", "<html><img src='a.png'></html>"])
def test_page_without_words_is_refused_as_empty(page: str) -> None:
    with pytest.raises(BookRejectedError) as refused:
        read_html(page.encode(), "a.html")

    assert refused.value.code == "book_empty"


def test_deeply_nested_page_is_read() -> None:
    book = read_html(("<div>" * 3000 + "deep" + "</div>" * 3000).encode(), "a.html")

    assert "deep" in " ".join(block.text for _, block in book.blocks())
