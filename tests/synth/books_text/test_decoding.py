"""Bytes become characters, or are refused: charsets with and without marks, NULs, binaries."""

from __future__ import annotations

import random

import pytest

from synth.books.txt.decoding import decode_text
from tests.synth.books_text.blocks import refusal_of

WESTERN = "Élise vit l\u2019été à Noël. Die Straße war früh leer. „Nun?“ — sagte er.\n" * 3
RUSSIAN = "Привет, мир. Это книга о лете и зиме. Она говорила тихо, но все слышали.\n" * 5  # noqa: RUF001
POLISH = "Zażółć gęślą jaźń, łódź i ćma. Był piękny dzień, gdy wyszła z domu.\n" * 5
JAPANESE = "吾輩は猫である。名前はまだ無い。どこで生れたか頓と見当がつかぬ。\n" * 5


@pytest.mark.parametrize(
    ("text", "charset"),
    [
        *((WESTERN, f"utf-{size}{order}") for size in (16, 32) for order in ("", "-le", "-be")),
        (WESTERN, "utf-8"),
        (WESTERN, "utf-8-sig"),
        (WESTERN, "cp1252"),
        (RUSSIAN, "utf-16-le"),
        (RUSSIAN, "utf-16-be"),
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "koi8-r"),
        (POLISH, "cp1250"),
        (JAPANESE, "utf-16-be"),
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc_jp"),
        (WESTERN, "mac_roman"),
    ],
)
def test_text_comes_back_from_each_charset(text: str, charset: str) -> None:
    assert decode_text(text.encode(charset)).text == text


def test_short_latin_1_text_is_read_right() -> None:
    assert decode_text("Hélas! Où est-il?".encode("latin-1")).text == "Hélas! Où est-il?"


def test_charset_that_the_text_declares_is_used() -> None:
    text = f"Character set encoding: ISO-8859-5\n\n{RUSSIAN}"

    assert decode_text(text.encode("iso8859-5")).text == text


def test_charset_that_the_text_declares_wrongly_does_no_harm() -> None:
    text = f"Character set encoding: ASCII\n\n{WESTERN}"

    assert decode_text(text.encode("cp1252")).text == text


def test_decomposed_letters_are_composed() -> None:
    assert decode_text("e\u0301te\u0301".encode()).text == "été"


@pytest.mark.parametrize(
    "raw", [b"", b" \r\n\t", b"\xef\xbb\xbf", b"\xff\xfe", b"\0\0\0\0", b"\x1a"]
)
def test_file_without_a_character_is_refused_as_empty(raw: bytes) -> None:
    assert refusal_of(decode_text, raw).code == "book_empty"


@pytest.mark.parametrize(
    "raw",
    [
        b"A text with a \0 in it, which is none.\n" * 3,
        random.Random(1).randbytes(5000),
        bytes(range(1, 32)) * 20,
        b"\xff\xfeabc\x00\xd8",  # half of a surrogate pair in UTF-16
        b"\xef\xbb\xbfcaf\xe9",
    ],
)
def test_what_is_no_text_is_refused(raw: bytes) -> None:
    assert refusal_of(decode_text, raw).code == "book_not_text"


def test_stray_control_character_is_told_and_read_as_a_blank() -> None:
    decoded = decode_text(b"one\x01two")

    assert decoded.text == "one two"
    assert decoded.warnings == ("1 control characters were read as blanks.",)


def test_a_few_strange_bytes_do_not_spoil_a_text_in_utf_8() -> None:
    raw = WESTERN.encode() + "Hélas!\n".encode("cp1252") + WESTERN.encode()

    for start in (b"", b"\xef\xbb\xbf"):
        decoded = decode_text(start + raw)
        assert decoded.text == f"{WESTERN}Hélas!\n{WESTERN}"
        assert any("1 byte " in warning for warning in decoded.warnings)


def test_a_charset_that_is_guessed_is_told() -> None:
    assert any("Windows-1252" in w for w in decode_text(WESTERN.encode("cp1252")).warnings)
    assert decode_text(WESTERN.encode()).warnings == ()


@pytest.mark.parametrize("name", ["unicode-escape", "utf-7", "utf-16", "idna", "hex", "../x", "x"])
def test_a_charset_that_a_text_cannot_be_in_is_not_believed(name: str) -> None:
    text = f"charset={name}\n\\x41 +AGE- {WESTERN}"

    assert decode_text(text.encode("cp1252")).text == text
