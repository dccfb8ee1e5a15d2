"""Manifests of books: CSV as tables write it, JSONL, and what is wrong with their lines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from synth.api.batches.entries import entries_of_list, read_manifest
from synth.models import Batch
from ttsweb.http.problems import status_of
from ttsweb.refusals import SubmitRejectedError

MOST = 100


def fields(content: bytes | str) -> list[dict[str, Any]]:
    data = content.encode() if isinstance(content, str) else content
    return [entry.fields for entry in read_manifest(data, most=MOST)]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"], ids=["comma", "semicolon", "tab"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"], ids=["plain", "bom"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_table_says_the_same_however_it_is_written(delimiter: str, bom: bytes, end: str) -> None:
    rows = [["file", "voice", "title"], ["a.epub", "Ada", "One"], ["b.epub", "Bob", ""]]
    text = end.join(delimiter.join(row) for row in rows) + end

    assert fields(bom + text.encode()) == [
        {"file": "a.epub", "voice": "Ada", "metadata": {"title": "One"}},
        {"file": "b.epub", "voice": "Bob"},
    ]


def test_cells_are_read_as_json_has_their_fields() -> None:
    head = "file,seed,speed,normalise,pauses,retention,authors,metadata.language,language"
    row = 'a.txt,7,1.5,true,"{""scene"": 900}",forever,Ada One; Bob Two,fr,en'

    assert fields(f"{head}\n{row}\n") == [
        {
            "file": "a.txt",
            "seed": 7,
            "speed": 1.5,
            "normalise": True,
            "pauses": {"scene": 900},
            "retention": "forever",
            "language": "en",
            "metadata": {"authors": ["Ada One", "Bob Two"], "language": "fr"},
        }
    ]


def test_quoted_cells_may_hold_separators_and_ends_of_lines_and_lines_keep_their_numbers() -> None:
    text = 'file,title\na.txt,"One,\nor two"\n\nb.txt,Three,too many\n"c.txt"x,Four\nd.txt,Five\n'
    found = read_manifest(text.encode(), most=MOST)

    assert [(e.line, e.error.code if e.error else None) for e in found] == [
        (2, None),
        (5, "too_many_cells"),
        (6, "not_csv"),
        (7, None),
    ]
    assert found[0].fields["metadata"]["title"] == "One,\nor two"


def test_lines_of_json_are_read_and_a_bad_one_is_named() -> None:
    lines = [
        b'{"file": "a.epub", "voice": "Ada"}',
        b"",
        b"[1]",
        b'{"file": "b", "file": "c"}',
        b'{"file": "\xff"}',
        b'{"file": NaN}',
    ]
    found = read_manifest(b"\n".join(lines), most=MOST)
    assert found[0].fields == {"file": "a.epub", "voice": "Ada"}
    assert [(e.line, e.error.code) for e in found[1:] if e.error] == [
        (3, "not_an_object"),
        (4, "not_json"),
        (5, "not_utf8"),
        (6, "not_json"),
    ]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "manifest_empty"),
        (b" \n\n", "manifest_empty"),
        (b"file,voice\n", "manifest_empty"),
        (b"file,voice\na.txt,\xff\n", "manifest_not_utf8"),
        ("file\na.txt".encode("utf-16"), "manifest_not_utf8"),
        (b"file,speaker\na.txt,Ada\n", "manifest_header_invalid"),
        (b"file,file\na.txt,b.txt\n", "manifest_header_invalid"),
        (b"voice\nAda\n", "manifest_header_invalid"),
        (b'"file\n', "manifest_header_invalid"),
        (b"file,start\na.txt,true\n", "manifest_header_invalid"),
    ],
    ids=["nothing", "blanks", "no-rows", "latin", "utf-16", "unknown", "twice", "no-file",
         "quote", "start"],
)  # fmt: skip
def test_manifest_that_cannot_be_read_is_refused_as_a_whole(content: bytes, code: str) -> None:
    with pytest.raises(SubmitRejectedError) as refused:
        read_manifest(content, most=MOST)
    assert (status_of(refused.value), refused.value.code) == (400, code)


def test_more_books_than_a_batch_may_have_are_refused_before_the_rest_is_read() -> None:
    lines = b"".join(json.dumps({"file": f"{n}.txt"}).encode() + b"\n" for n in range(4))
    with pytest.raises(SubmitRejectedError) as of_file:
        read_manifest(lines + b"{broken", most=3)
    with pytest.raises(SubmitRejectedError) as of_list:
        entries_of_list([{}] * 4, max_items=3, kind=Batch.Kind.BOOKS)

    for refused in (of_file, of_list):
        assert (status_of(refused.value), refused.value.code) == (413, "book_batch_too_many")
