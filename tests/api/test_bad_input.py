"""Input meant to break a served project is refused in words, at once, and leaves nothing."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.served import TRANSCRIPT, VOICE, Served

HUGE = 100_000_000
MOST_GROWTH_BYTES = 80_000_000
FOR_EVER = "(a+)+$"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def api(served: Served) -> httpx.Client:
    """The operator's client."""
    return served.api


@contextmanager
def nothing_made(api: httpx.Client) -> Iterator[None]:
    """Hold what happens inside to leave neither a job nor a batch nor a voice.

    What takes for ever fails: the client waits for an answer for as long as its timeout says.
    """
    before = _counts(api)
    yield
    assert _counts(api) == before


def _counts(api: httpx.Client) -> list[list[str]]:
    lists = ("/jobs", "/batches", "/voices", "/webhooks/endpoints")
    return [
        [row["id"] for row in api.get(path, params={"limit": 200}).json()["results"]]
        for path in lists
    ]


def code_of(answer: httpx.Response, status: int) -> str:
    """Return the code of a problem, which must have this status."""
    assert answer.status_code == status, answer.text[:500]
    assert answer.headers["Content-Type"] == "application/problem+json"
    return str(answer.json()["code"])


def lines_of(items: list[dict[str, Any]]) -> bytes:
    """Return items as JSONL."""
    return b"\n".join(json.dumps(item).encode() for item in items)


@pytest.mark.parametrize("form", ["json", "jsonl", "file"])
def test_batch_of_10_001_items_is_refused(form: str, api: httpx.Client) -> None:
    items = [{"text": f"Sentence {index}.", "voice": VOICE} for index in range(10_001)]
    sent: dict[str, dict[str, Any]] = {
        "json": {"json": {"items": items}},
        "jsonl": {"content": lines_of(items), "headers": {"Content-Type": "application/jsonl"}},
        "file": {"files": {"file": ("items.jsonl", lines_of(items))}},
    }

    with nothing_made(api):
        answer = api.post("/batches", **sent[form])

    assert code_of(answer, 413) == "batch_too_many_items"
    assert "10000 are allowed" in answer.json()["detail"]


def test_bad_line_is_named_and_nothing_is_queued(api: httpx.Client) -> None:
    body = lines_of([{"text": "One.", "voice": VOICE}]) + b'\n{"text": \n{"text": "Three."}'

    with nothing_made(api):
        answer = api.post(
            "/batches", content=body, headers={"Content-Type": "application/x-ndjson"}
        )

    assert code_of(answer, 400) == "batch_items_invalid"
    assert [error["line"] for error in answer.json()["errors"]] == [2, 3]


def test_rest_of_a_file_with_a_bad_line_is_queued_if_asked(api: httpx.Client) -> None:
    body = lines_of([{"text": "One.", "voice": VOICE}]) + b"\nnot JSON"

    answer = api.post(
        "/batches?on_error=skip", content=body, headers={"Content-Type": "application/jsonl"}
    )

    assert answer.status_code == 202
    assert (answer.json()["items_total"], answer.json()["counts"]["failed"]) == (2, 1)


@pytest.mark.parametrize("path", ["/jobs", "/batches"])
def test_idempotency_key_with_another_body_is_refused(path: str, api: httpx.Client) -> None:
    def body(text: str) -> dict[str, Any]:
        item = {"text": text, "voice": VOICE}
        return item if path == "/jobs" else {"items": [item]}

    headers = {"Idempotency-Key": f"the same for {path}"}
    first = api.post(path, json=body("One."), headers=headers)

    again = api.post(path, json=body("One."), headers=headers)
    with nothing_made(api):
        other = api.post(path, json=body("Two."), headers=headers)

    assert first.status_code == 202
    assert again.json()["id"] == first.json()["id"]
    assert code_of(other, 422) == "idempotency_key_reused"


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:9/", "https://localhost/hook", "http://[::1]/", "http://2130706433/",
     "http://169.254.169.254/latest/meta-data", "http://[::ffff:10.0.0.1]/"],
)  # fmt: skip
def test_webhook_inside_the_network_is_refused_wherever_one_is_taken(
    url: str, api: httpx.Client
) -> None:
    item = {"text": "One.", "voice": VOICE}

    with nothing_made(api):
        answers = [
            api.post("/jobs", json={**item, "webhook": url}),
            api.post("/batches", json={"items": [item], "webhook": url}),
            api.post("/webhooks/endpoints", json={"url": url}),
        ]

    assert [code_of(answer, 400) for answer in answers] == ["url_private_address"] * 3


def memory_of(process_id: int) -> int:
    """Return the most bytes that a process has had in memory."""
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


@pytest.mark.parametrize("in_chunks", [False, True], ids=["declared", "in chunks"])
def test_data_url_of_100_megabytes_is_refused_in_bounded_memory(
    in_chunks: bool, served: Served
) -> None:
    start = b'{"text": "One.", "reference": {"text": "x", "audio": "data:audio/wav;base64,'
    size = 1_000_000

    def body() -> Iterator[bytes]:
        yield start
        yield from (b"A" * size for _ in range(HUGE // size))
        yield b'"}}'

    length = {} if in_chunks else {"Content-Length": str(len(start) + HUGE + 3)}
    before = memory_of(served.process_id)

    with nothing_made(served.api):
        answer = served.api.post("/jobs", content=body(), headers=JSON | length)

    assert code_of(answer, 413) == "body_too_large"
    assert memory_of(served.process_id) - before < MOST_GROWTH_BYTES


def test_clip_of_some_megabytes_in_json_is_read(api: httpx.Client) -> None:
    audio = "data:audio/wav;base64," + "A" * 8_000_000

    answer = api.post("/jobs", json={"text": "One.", "reference": {"audio": audio, "text": "x"}})

    assert code_of(answer, 400) == "clip_not_audio"


def test_body_in_chunks_says_what_it_says_in_one_piece(api: httpx.Client) -> None:
    def parts() -> Iterator[bytes]:
        yield b'{"text": "One.", '
        yield f'"voice": "{VOICE}", "seed": 7}}'.encode()

    answer = api.post("/jobs", content=parts(), headers=JSON)

    assert (answer.status_code, answer.json()["seed"]) == (202, 7)


def test_pattern_that_backtracks_for_ever_is_refused_everywhere(served: Served) -> None:
    api, lexicon = served.api, f"/lexicons/{served.ids['lexicon_id']}"
    entry = {"find": FOR_EVER, "say": "x", "kind": "regex"}
    text = {"text": "a" * 3000 + "!", "lexicon": [entry]}
    before = api.get(lexicon).json()["entries_total"]

    for path, body in (
        (f"{lexicon}/entries", entry),
        ("/jobs", text | {"voice": VOICE}),
        ("/preview", text | {"voice": VOICE}),
        ("/lexicons/preview", text),
    ):
        with nothing_made(api):
            answer = api.post(path, json=body)
        assert code_of(answer, 400) == "pattern_too_slow", path
    with nothing_made(api):
        answer = api.post(
            f"{lexicon}/import",
            content=f"find,say,kind\n{FOR_EVER},x,regex\n".encode(),
            headers={"Content-Type": "text/csv"},
        )
    assert code_of(answer, 400) == "pattern_too_slow"
    assert api.get(lexicon).json()["entries_total"] == before


def test_many_such_patterns_take_no_longer_than_a_few(served: Served) -> None:
    api = served.api
    finds = [f"(a+)+{index}$" for index in range(500)]
    items = [
        {"text": "Aaa.", "voice": VOICE, "lexicon": [{"find": find, "say": "x", "kind": "regex"}]}
        for find in finds
    ]
    rows = "".join(f"{find},x,regex\n" for find in finds)

    with nothing_made(api):
        batch = api.post("/batches", json={"items": items})
    with nothing_made(api):
        file = api.post(
            f"/lexicons/{served.ids['lexicon_id']}/import",
            content=f"find,say,kind\n{rows}".encode(),
            headers={"Content-Type": "text/csv"},
        )

    assert code_of(batch, 400) == "batch_items_invalid"
    assert code_of(file, 400) == "pattern_too_slow"


BOMB = b"""<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">
<!ENTITY c "&b;&b;&b;&b;&b;&b;">]><lexicon>&c;</lexicon>"""
OUTSIDE = b"""<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a SYSTEM "file:///etc/passwd">]>
<lexicon>&a;</lexicon>"""


@pytest.mark.parametrize(
    ("content", "kind", "status", "code"),
    [
        pytest.param(BOMB, "application/pls+xml", 400, "pls_doctype", id="entities"),
        pytest.param(OUTSIDE, "text/xml", 400, "pls_doctype", id="a file of the server"),
        pytest.param(
            b"find,say\n" + b"a,b\n" * 1_000_000, "text/csv", 400, "too_many_entries", id="lines"
        ),
        pytest.param(b"find,say\n" + b"a\n" * 1_000_000, "text/csv", 400, "csv_cells", id="bad"),
        pytest.param(b"a" * 40_000_000, "text/csv", 413, "body_too_large", id="bytes"),
    ],
)
def test_file_that_is_no_lexicon_is_refused(
    content: bytes, kind: str, status: int, code: str, served: Served
) -> None:
    lexicon = f"/lexicons/{served.ids['lexicon_id']}"
    before = served.api.get(lexicon).json()["entries_total"]

    with nothing_made(served.api):
        answer = served.api.post(
            f"{lexicon}/import", content=content, headers={"Content-Type": kind}
        )

    assert code_of(answer, status) == code
    assert served.api.get(lexicon).json()["entries_total"] == before


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [("manifest.json", 413, "archive_too_large"), ("clips/0.wav", 413, "archive_too_large")],
)
def test_archive_that_unpacks_to_far_more_than_it_is_is_refused(
    name: str, status: int, code: str, served: Served
) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, b"\0" * HUGE)
    before = memory_of(served.process_id)

    with nothing_made(served.api):
        answer = served.api.post(
            "/voices/import", files={"archive": ("voice.zip", file.getvalue())}
        )

    assert code_of(answer, status) == code
    assert memory_of(served.process_id) - before < MOST_GROWTH_BYTES


@pytest.mark.parametrize("path", ["/jobs", "/batches", "/preview", "/lexicons", "/keys", "/users"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"[" * 100_000 + b"]" * 100_000, "too deeply", id="lists"),
        pytest.param(b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "too deeply", id="objects"),
        pytest.param(b'{"text": "a", "text": "b"}', "twice", id="a name twice"),
        pytest.param(b'{"seed": ' + b"9" * 10_000 + b"}", "thousands of digits", id="digits"),
        pytest.param(b'{"speed": NaN}', "NaN is not a JSON number", id="NaN"),
        pytest.param('{"text": "a"}'.encode("utf-16"), "not UTF-8", id="UTF-16"),
        pytest.param(b"\x00", "cannot be read", id="NUL"),
    ],
)
def test_json_that_means_nothing_is_refused(
    path: str, content: bytes, words: str, api: httpx.Client
) -> None:
    with nothing_made(api):
        answer = api.post(path, content=content, headers=JSON)

    assert code_of(answer, 400) == "parse_error"
    assert words in answer.json()["detail"]


def test_wrong_content_type_and_wrong_value_of_the_body_are_refused(api: httpx.Client) -> None:
    for path in ("/jobs", "/batches", "/preview", "/lexicons", "/keys", "/users"):
        with nothing_made(api):
            wrong = api.post(path, content=b"<a/>", headers={"Content-Type": "text/xml"})
            empty = api.post(path)
            others = [api.post(path, json=value) for value in ([1], "text", 5, True)]

        assert code_of(wrong, 415) == "unsupported_media_type"
        assert code_of(empty, 400) == "required"
        assert [answer.status_code for answer in others] == [400] * 4


def test_form_with_a_clip_that_is_none_is_refused(api: httpx.Client) -> None:
    form = {"name": "Mallory", "transcript": TRANSCRIPT, "consent_statement": "None."}

    with nothing_made(api):
        answers = [
            api.post("/voices", data=form, files={"audio": ("clip.wav", content)})
            for content in (b"", b"RIFF", b"#!/bin/sh", b"\0" * 1_000_000)
        ]

    assert {code_of(answer, 400) for answer in answers} <= {"clip_not_audio", "clip_empty"}
