"""What somebody should look at is told, with the place where it is."""

from __future__ import annotations

import pytest

from synth.books.epub import read_epub
from synth.books.plan import plan_book
from tests.synth.books.made_epub import METADATA, PROSE, Epub, page


def warnings_of(inner: str, *, metadata: str = METADATA) -> list[str]:
    pages = {
        "a.xhtml": page(f"<h1>First</h1><p>{PROSE}</p>"),
        "b.xhtml": page(f"<h1>The Second</h1>{inner}"),
    }
    return list(plan_book(read_epub(Epub(pages, metadata=metadata).bytes())).warnings)


@pytest.mark.parametrize(
    ("inner", "told"),
    [
        (f"<p>{PROSE}\ufffd and \ue000 \ufffd</p>", ["U+FFFD (2", "U+E000 (1"]),
        (
            f"<p>{PROSE}caf\u00c3\u00a8, d\u00c3\u00a8j\u00c3\u00a8</p>",
            ["3 letters", "wrong encoding"],
        ),
        (f"<p>{PROSE * 80}</p>", ["paragraph of", "(It was a long and"]),
        (f'<p xml:lang="klingon">{PROSE}</p>', ["'klingon'"]),
        ("<p>Short.</p>", ["very short"]),
    ],
    ids=["odd", "garbled", "long", "language", "short"],
)
def test_a_warning_says_what_is_odd_and_where(inner: str, told: list[str]) -> None:
    (warning,) = warnings_of(inner)

    assert "'The Second'" in warning
    assert all(words in warning for words in told)


@pytest.mark.parametrize("tag", ["", "und"])
def test_a_language_that_is_not_known_is_told(tag: str) -> None:
    metadata = METADATA.replace("<dc:language>en", f"<dc:language>{tag}")

    assert any(
        "language" in w and "set the language" in w
        for w in warnings_of(f"<p>{PROSE}</p>", metadata=metadata)
    )


def test_letters_of_any_script_are_not_odd() -> None:
    text = "Ünïcödé “quotes” — Ã la Âge, 漢字, العربية, עברית, ไทย, हिन्दी, 한국어, 👍🏽, ½ ﬁ"

    assert warnings_of(f"<p>{PROSE}{text}</p>") == []
