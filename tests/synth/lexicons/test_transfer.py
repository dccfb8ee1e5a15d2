"""Lexicons as files: they come back the same; what is bad is named, and changes nothing."""

# ruff: noqa: RUF001  # look-alikes of ASCII are among what is tried

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from rest_framework.test import APIClient

from synth.lexicons.files import PLS, FileRefusedError, read_csv, read_pls, write_csv
from synth.models import Lexicon, LexiconEntry
from tests.factories import make_lexicon

pytestmark = pytest.mark.django_db(transaction=True)
URL = "/api/v1/lexicons"
HEAD = f'<lexicon version="1.0" xmlns="{PLS}" alphabet="ipa" xml:lang="en">'


@pytest.fixture
def lexicon(operator: User) -> Lexicon:
    """A lexicon of the operator with two entries."""
    return make_lexicon(operator, ("data", "dayta"), ("Nguyen", "Win"), language="en")


def values_of(lexicon: Lexicon) -> list[tuple[Any, ...]]:
    return list(
        lexicon.entries.values_list("find", "say", "kind", "case_sensitive", "language", "enabled")
    )


def send(api: APIClient, lexicon: Lexicon, content: Any, kind: str, query: str = "") -> Any:
    path = f"{URL}/{lexicon.pk}/import{query}"
    return api.generic("POST", path, content, content_type=kind)


def test_csv_comes_back_the_same_whatever_is_in_it(api: APIClient, lexicon: Lexicon) -> None:
    for find, say in [
        ("=1+1", "@x"), ("'=1", "''+2"), ('a "quoted", b', "ä ö 漢字"), ("-5", "minus five"),
        ("'tis", "it is"),
    ]:  # fmt: skip
        lexicon.entries.create(find=find, say=say, kind="literal", index=9)
    lexicon.entries.create(
        find=r"(\d+) km", say=r"\1 kilometers", kind="regex", case_sensitive=True,
        language="en-GB", enabled=False, index=10,
    )  # fmt: skip
    before = values_of(lexicon)

    exported = api.get(f"{URL}/{lexicon.pk}/export?format=csv")
    answer = send(api, lexicon, exported.content, "text/csv", "?mode=replace")

    assert exported["Content-Type"] == "text/csv; charset=utf-8"
    assert "attachment" in exported["Content-Disposition"]
    assert answer.json() == {"added": 8, "entries_total": 8, "warnings": []}
    assert values_of(lexicon) == before


def test_no_cell_of_an_exported_csv_begins_a_formula(lexicon: Lexicon) -> None:
    for find in ("=cmd()", "+1", "-1", "@SUM", "\t=1", "＝1"):
        lexicon.entries.create(find=find, say=find, index=5)

    text = write_csv(lexicon.entries.all()).decode()

    assert text.startswith("\ufeff")  # spreadsheets take it for UTF-8 by this
    cells = [cell for line in text[1:].splitlines() for cell in line.split(",")]
    assert not [cell for cell in cells if cell.strip('"').startswith(tuple("=+-@\t＝"))]


def test_csv_of_other_programs_is_read(api: APIClient, lexicon: Lexicon) -> None:
    contents = (
        "find,say\nGIF,jif\n", "\ufefffind,say\r\nGIF,jif\r\n", "say,find,kind\n\njif,GIF,word\n",
    )  # fmt: skip
    for number, content in enumerate(contents, start=3):
        answer = send(api, lexicon, content, "text/csv").json()
        assert answer == {"added": 1, "entries_total": number, "warnings": []}, content
        assert values_of(lexicon)[-1] == ("GIF", "jif", "word", False, "", True), content


def test_bad_lines_are_named_and_nothing_is_changed(api: APIClient, lexicon: Lexicon) -> None:
    before = values_of(lexicon)
    content = (
        "find,say,kind,case_sensitive,language\n"
        "good,fine,word,true,en\n"
        "(a+)+$,x,regex,,\n"
        "b,y,glob,,\n"
        "c,z,word,maybe,\n"
        "d,z,word,,not a tag\n"
        "e,f\n"
        ",f,word,,\n"
    )

    answer = send(api, lexicon, content, "text/csv", "?mode=replace")

    assert answer.status_code == 400
    errors = {error["attr"]: error["code"] for error in answer.json()["errors"]}
    assert errors == {
        "lines.3.find": "pattern_too_slow",
        "lines.4.kind": "invalid",
        "lines.5.case_sensitive": "invalid",
        "lines.6.language": "language_invalid",
        "lines.7": "csv_cells",
        "lines.8.find": "find_empty",
    }
    assert values_of(lexicon) == before


def test_file_that_is_no_csv_is_a_400(api: APIClient, lexicon: Lexicon) -> None:
    for content, code in (
        (b"", "file_empty"),
        (b"\xff\xfe", "file_not_utf8"),
        (b"a;b\n1;2\n", "csv_columns"),
        (b"find\nx\n", "csv_columns"),
        (b"find,say,find\nx,y,z\n", "csv_columns"),
        (b'find,say\n"x,y\n', "csv_invalid"),
        (b"find,say\nx\0,y\n", "text_invalid"),
        (b"find,say\n" + b"x" * 200_000 + b",y\n", "csv_invalid"),
    ):
        answer = send(api, lexicon, content, "text/csv")
        assert answer.status_code == 400, content
        assert answer.json()["errors"][0]["code"] in (code, "csv_invalid", "required"), content
    assert lexicon.entries.count() == 2


def test_pls_comes_back_the_same_and_says_what_it_cannot_hold(
    api: APIClient, lexicon: Lexicon
) -> None:
    lexicon.entries.create(
        find="R & D <x>", say='"quoted"', kind="literal", case_sensitive=True, index=5
    )
    lexicon.entries.create(find="x", say="y", language="en-GB", index=6)
    before = values_of(lexicon)
    lexicon.entries.create(find=r"\d+", say="number", kind="regex", index=7)

    exported = api.get(f"{URL}/{lexicon.pk}/export?format=pls")
    answer = send(api, lexicon, exported.content, "application/pls+xml", "?mode=replace")

    assert exported["X-Left-Out"] == "1"
    assert answer.json()["added"] == 4
    assert values_of(lexicon) == before


def test_pls_of_another_program_is_read_and_phonemes_are_named(
    api: APIClient, lexicon: Lexicon
) -> None:
    content = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        + HEAD.replace('"en"', '"de"')
        + "<meta name='x' content='y'/>\n"
        "<lexeme><grapheme>W3C</grapheme><grapheme>w3c</grapheme>"
        "<alias>World Wide Web Consortium</alias><example>x</example></lexeme>\n"
        "<lexeme><grapheme>Newton</grapheme><phoneme>ˈnjuːtən</phoneme></lexeme>\n"
        "<lexeme><grapheme>A</grapheme><alias>one</alias><alias prefer='true'>two</alias></lexeme>"
        "</lexicon>"
    )

    answer = send(api, lexicon, content, "application/xml")

    assert answer.status_code == 200
    assert answer.json()["added"] == 3
    (warning,) = answer.json()["warnings"]
    assert "Newton" in warning
    assert "Line 4" in warning
    assert values_of(lexicon)[2:] == [
        ("W3C", "World Wide Web Consortium", "word", True, "de", True),
        ("w3c", "World Wide Web Consortium", "word", True, "de", True),
        ("A", "two", "word", True, "de", True),
    ]


LEXEMES = HEAD + "<lexeme>{}</lexeme></lexicon>"


def test_file_that_is_no_pls_or_has_a_document_type_is_a_400(
    api: APIClient, lexicon: Lexicon
) -> None:
    for content, code in (
        ('<!DOCTYPE lexicon [<!ENTITY a "aaaa">]>' + HEAD + "</lexicon>", "pls_doctype"),
        ('<!DOCTYPE x SYSTEM "file:///etc/passwd">' + HEAD + "</lexicon>", "pls_doctype"),
        ('<!DOCTYPE x [<!ENTITY % e SYSTEM "http://127.0.0.1/"> %e;]>' + HEAD + "</lexicon>",
         "pls_doctype"),
        ("<lexicon>", "pls_invalid"),
        ("<lexicon/>", "pls_invalid"),
        (HEAD + "<lexeme>" * 50, "pls_invalid"),
        (HEAD + "&nbsp;</lexicon>", "pls_invalid"),
        (LEXEMES.format("<alias>x</alias>"), "pls_lexeme"),
        (LEXEMES.format("<grapheme>x</grapheme>"), "pls_lexeme"),
        (LEXEMES.format("<grapheme/><alias>x</alias>"), "find_empty"),
    ):  # fmt: skip
        answer = send(api, lexicon, content, "application/pls+xml")
        assert (answer.status_code, answer.json()["code"]) == (400, code), content
    assert lexicon.entries.count() == 2
    with pytest.raises(FileRefusedError, match=re.escape(PLS)):  # no namespace: named as the fault
        read_pls(b"<lexicon><lexeme/></lexicon>")


def test_form_may_bring_either_format(api: APIClient, lexicon: Lexicon) -> None:
    path = f"{URL}/{lexicon.pk}/import"
    csv = SimpleUploadedFile("a.csv", b"find,say\nGIF,jif\n")
    content = LEXEMES.format("<grapheme>a</grapheme><alias>b</alias>")
    pls = SimpleUploadedFile("a.pls", content.encode())

    for form, entries in (({"file": csv, "mode": "replace"}, 1), ({"file": pls}, 2)):
        assert api.post(path, form, format="multipart").json()["entries_total"] == entries


def test_import_needs_a_file_and_a_mode_that_exists(api: APIClient, lexicon: Lexicon) -> None:
    path = f"{URL}/{lexicon.pk}/import"

    assert api.post(path, {"mode": "append"}, format="multipart").status_code == 400
    assert send(api, lexicon, "find,say\n", "text/csv", "?mode=merge").status_code == 400
    assert send(api, lexicon, "{}", "application/json").status_code == 415
    assert api.get(f"{URL}/{lexicon.pk}/export?format=xml").status_code == 400


def test_import_takes_no_more_entries_than_allowed(
    api: APIClient, lexicon: Lexicon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synth.lexicons.store.MAX_LEXICON_ENTRIES", 3)

    appended = send(api, lexicon, "find,say\na,b\nc,d\n", "text/csv")
    too_many = send(api, lexicon, "find,say\n" + "a,b\n" * 4, "text/csv", "?mode=replace")
    too_long = send(api, lexicon, b"x" * 200_000, "text/csv")

    assert (appended.status_code, appended.json()["code"]) == (409, "too_many_entries")
    assert (too_many.status_code, too_many.json()["code"]) == (400, "too_many_entries")
    assert too_long.status_code == 413
    assert LexiconEntry.objects.count() == 2


def test_file_of_thousands_of_entries_is_taken(api: APIClient, lexicon: Lexicon) -> None:
    content = "find,say,kind\n" + "".join(f"word{n},said{n},word\n" for n in range(4998))

    answer = send(api, lexicon, content, "text/csv")

    assert answer.json()["entries_total"] == 5000


def test_lines_count_from_the_first_of_the_file() -> None:
    reading = read_csv(b'find,say\n"a b",c\n\n"x ""y",z\n')

    assert [entry.line for entry in reading.entries] == [2, 4]
