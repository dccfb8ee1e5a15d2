"""Input meant to break a served project is refused in words, at once, and leaves nothing."""

from __future__ import annotations

import io
import json
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.answers import refusal_of
from tests.api.generated import described
from tests.api.served import VOICE, Served
from tests.workers.commands import TRANSCRIPT

HUGE = 100_000_000
MOST_GROWTH_BYTES = 80_000_000
FOR_EVER = "(a+)+$"
JSON = {"Content-Type": "application/json"}
ITEM = {"text": "One.", "voice": VOICE}


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


def post_file(api: httpx.Client, path: str, content: Any, kind: str) -> httpx.Response:
    return api.post(path, content=content, headers={"Content-Type": kind})


def lines_of(items: list[dict[str, Any]]) -> bytes:
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

    assert refusal_of(answer) == (413, "batch_too_many_items")
    assert "10000 are allowed" in answer.json()["detail"]


def test_webhook_inside_the_network_is_refused_wherever_one_is_taken(api: httpx.Client) -> None:
    for url in (
        *("http://127.0.0.1:9/", "https://localhost/hook", "http://[::1]/", "http://2130706433/"),
        *("http://169.254.169.254/latest/meta-data", "http://[::ffff:10.0.0.1]/"),
    ):
        with nothing_made(api):
            answers = [
                api.post("/jobs", json={**ITEM, "webhook": url}),
                api.post("/batches", json={"items": [ITEM], "webhook": url}),
                api.post("/webhooks/endpoints", json={"url": url}),
            ]
        refused = (400, "url_private_address")
        assert [refusal_of(answer) for answer in answers] == [refused] * 3, url


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

    assert refusal_of(answer) == (413, "body_too_large")
    assert memory_of(served.process_id) - before < MOST_GROWTH_BYTES


def test_body_in_chunks_says_what_it_says_in_one_piece_and_clips_of_megabytes_are_read(
    api: httpx.Client,
) -> None:
    parts = iter([b'{"text": "One.", ', f'"voice": "{VOICE}", "seed": 7}}'.encode()])
    answer = api.post("/jobs", content=parts, headers=JSON)
    assert (answer.status_code, answer.json()["seed"]) == (202, 7)
    audio = "data:audio/wav;base64," + "A" * 8_000_000
    answer = api.post("/jobs", json={"text": "One.", "reference": {"audio": audio, "text": "x"}})
    assert refusal_of(answer) == (400, "clip_not_audio")


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
        assert refusal_of(answer) == (400, "pattern_too_slow"), path
    with nothing_made(api):
        rows = f"find,say,kind\n{FOR_EVER},x,regex\n".encode()
        answer = post_file(api, f"{lexicon}/import", rows, "text/csv")
    assert refusal_of(answer) == (400, "pattern_too_slow")
    assert api.get(lexicon).json()["entries_total"] == before


def test_many_such_patterns_take_no_longer_than_a_few(served: Served) -> None:
    finds = [f"(a+)+{index}$" for index in range(500)]
    entries = [{"find": find, "say": "x", "kind": "regex"} for find in finds]
    rows = "find,say,kind\n" + "".join(f"{find},x,regex\n" for find in finds)
    path = f"/lexicons/{served.ids['lexicon_id']}/import"

    with nothing_made(served.api):
        items = [{"text": "Aaa.", "voice": VOICE, "lexicon": [entry]} for entry in entries]
        batch = served.api.post("/batches", json={"items": items})
        file = post_file(served.api, path, rows.encode(), "text/csv")

    assert refusal_of(batch) == (400, "batch_items_invalid")
    assert refusal_of(file) == (400, "pattern_too_slow")


BOMB = b"""<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">
<!ENTITY c "&b;&b;&b;&b;&b;&b;">]><lexicon>&c;</lexicon>"""
OUTSIDE = b"""<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a SYSTEM "file:///etc/passwd">]>
<lexicon>&a;</lexicon>"""


def test_file_that_is_no_lexicon_is_refused(served: Served) -> None:
    lexicon = f"/lexicons/{served.ids['lexicon_id']}"
    before = served.api.get(lexicon).json()["entries_total"]
    many_entries = b"find,say\n" + b"a,b\n" * 1_000_000
    many_rows = b"find,say\n" + b"a\n" * 1_000_000

    for what, content, kind, refused in (
        ("entities in entities", BOMB, "application/pls+xml", (400, "pls_doctype")),
        ("entity of a file", OUTSIDE, "text/xml", (400, "pls_doctype")),
        ("too many entries", many_entries, "text/csv", (400, "too_many_entries")),
        ("missing cells", many_rows, "text/csv", (400, "csv_cells")),
        ("too many bytes", b"a" * 40_000_000, "text/csv", (413, "body_too_large")),
    ):
        with nothing_made(served.api):
            answer = post_file(served.api, f"{lexicon}/import", content, kind)
        assert refusal_of(answer) == refused, what
    assert served.api.get(lexicon).json()["entries_total"] == before


@pytest.mark.parametrize("name", ["manifest.json", "clips/0.wav"])
def test_archive_that_unpacks_to_far_more_than_it_is_is_refused(name: str, served: Served) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, b"\0" * HUGE)
    before = memory_of(served.process_id)

    with nothing_made(served.api):
        files = {"archive": ("voice.zip", file.getvalue())}
        answer = served.api.post("/voices/import", files=files)

    assert refusal_of(answer) == (413, "archive_too_large")
    assert memory_of(served.process_id) - before < MOST_GROWTH_BYTES


PATHS = ("/jobs", "/batches", "/preview", "/lexicons", "/keys", "/users")


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
def test_json_that_means_nothing_is_refused(content: bytes, words: str, api: httpx.Client) -> None:
    with nothing_made(api):
        answers = {path: api.post(path, content=content, headers=JSON) for path in PATHS}

    for path, answer in answers.items():
        assert refusal_of(answer) == (400, "parse_error"), path
        assert words in answer.json()["detail"], path


def test_wrong_content_type_and_wrong_value_of_the_body_are_refused(api: httpx.Client) -> None:
    with nothing_made(api):
        for path in PATHS:
            wrong_type = post_file(api, path, b"<a/>", "text/xml")
            assert refusal_of(wrong_type) == (415, "unsupported_media_type"), path
            assert refusal_of(api.post(path)) == (400, "required"), path
            for value in ([1], "text", 5, True):
                assert api.post(path, json=value).status_code == 400, (path, value)


BODIES: dict[str, Any] = {"approve_segment": {"take": str(uuid.UUID(int=4))}}


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 10**28])
def test_number_that_no_row_can_have_is_refused_wherever_one_is_in_an_address(
    number: int, served: Served
) -> None:
    tried = []
    for path, operations in described()["paths"].items():
        for method in operations.keys() & {"get", "post", "put", "patch", "delete"}:
            operation = operations[method]
            names = {
                one["name"]: one for one in operation.get("parameters", []) if one["in"] == "path"
            }
            if all(one["schema"]["type"] != "integer" for one in names.values()):
                continue
            is_whole = {name: one["schema"]["type"] == "integer" for name, one in names.items()}
            ids = {name: number if is_whole[name] else served.ids[name] for name in names}
            body = BODIES.get(operation["operationId"], {}) if "requestBody" in operation else None
            sent = served.api.request(method, served.url + path.format(**ids), json=body)
            assert 400 <= sent.status_code < 500, (operation["operationId"], sent.text)
            tried.append(operation["operationId"])

    assert "approve_segment" in tried and len(tried) >= 10


def test_form_with_a_clip_that_is_none_is_refused(api: httpx.Client) -> None:
    form = {"name": "Mallory", "transcript": TRANSCRIPT, "consent_statement": "None."}

    with nothing_made(api):
        answers = [
            api.post("/voices", data=form, files={"audio": ("clip.wav", content)})
            for content in (b"", b"RIFF", b"#!/bin/sh", b"\0" * 1_000_000)
        ]

    allowed = {(400, "clip_not_audio"), (400, "clip_empty")}
    assert {refusal_of(answer) for answer in answers} <= allowed
