"""The client as a program uses it: voices, jobs, books, review, waits; what its import loads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.ttsweb.client.faulty_server import Answer, FaultyClient, json_answer, problem
from ttsweb.client import (
    Client,
    Clip,
    ConflictError,
    NotFoundError,
    VoiceFailedError,
    WaitTimeoutError,
)

ID = "5b0f4a0e-0d53-4bbb-8ad1-3f4e4b1b2f11"
FILE = "9d3c2e52-6a34-4bb0-9c3c-7b4b7a2f0e55"
BOOK = f"/api/v1/books/{ID}"
CLIP = Clip(b"RIFF", "What is said.")


def test_import_loads_neither_django_nor_celery_nor_torch(clean_env: dict[str, str]) -> None:
    code = (
        "import sys, ttsweb.client\n"
        "walls = ('django', 'celery', 'kombu', 'torch', 'rest_framework', 'ttsweb.settings')\n"
        "print([name for name in walls if name in sys.modules])"
    )
    del clean_env["DJANGO_SETTINGS_MODULE"]
    ended = subprocess.run(
        [sys.executable, "-c", code], env=clean_env, capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("call", "request_line", "body"),
    [
        (lambda tts: tts.jobs.create("Hé\n", voice="Ada", format="mp3", seed=7),
         "POST /api/v1/jobs", {"text": "Hé\n", "voice": "Ada", "format": "mp3", "seed": 7}),
        (lambda tts: tts.jobs.create(
            "Hello.", voices={0: "Ada", 12: "Bob"}, references={3: CLIP},
            pauses={"sentence": 10}, normalise=True),
         "POST /api/v1/jobs",
         {"text": "Hello.", "voices": {"0": "Ada", "12": "Bob"}, "references": {"3": {
             "audio": "data:application/octet-stream;base64,UklGRg==", "text": "What is said."}},
          "pauses": {"sentence": 10}, "normalise": True}),
        (lambda tts: tts.jobs.change(ID, priority="bulk", deadline=None),
         f"PATCH /api/v1/jobs/{ID}", {"priority": "bulk", "deadline": None}),
        (lambda tts: tts.books.set_metadata(ID, {"title": "Kine"}, series=None),
         f"PATCH {BOOK}", {"metadata": {"title": "Kine", "series": None}}),
        (lambda tts: tts.review.approve(7, FILE), "POST /api/v1/review/7/approve", {"take": FILE}),
        (lambda tts: tts.review.approve_all({7: FILE}), "POST /api/v1/review/approve",
         {"takes": [{"segment": 7, "take": FILE}]}),
    ],
)  # fmt: skip
def test_call_sends_what_was_given_and_nothing_else(
    client: FaultyClient, call: Callable[[Client], object], request_line: str, body: Any
) -> None:
    call(client)
    [request] = client.requests
    assert (f"{request.method} {request.path}", client.sent) == (request_line, body)


@pytest.mark.parametrize(
    "create",
    [
        lambda tts, _: tts.jobs.create("Hi.", voice="Ada", idempotency_key="k"),
        lambda tts, _: tts.batches.submit([{"text": "Hi."}], idempotency_key="k"),
        lambda tts, book: tts.books.upload(book, idempotency_key="k"),
        lambda tts, _: tts.book_batches.create([{"file": "a"}], idempotency_key="k"),
    ],
)
def test_repeated_key_returns_what_was_made_first(
    client: FaultyClient, tmp_path: Path, create: Callable[[Client, Path], dict[str, Any]]
) -> None:
    book = tmp_path / "book.txt"
    book.write_text("Some words.")
    client.answers(json_answer({"id": ID}, 202), json_answer({"id": ID}, 200))
    assert create(client, book)["id"] == create(client, book)["id"] == ID
    assert [one.headers["idempotency-key"] for one in client.requests] == ["k", "k"]


def test_clip_is_uploaded_with_its_text_and_all_options(
    client: FaultyClient, tmp_path: Path
) -> None:
    path = tmp_path / "ada.wav"
    path.write_bytes(b"RIFF\x00sound")
    options: dict[str, Any] = {"seed": 7, "live": True, "retention": "forever", "loudness": -16.5}
    reference, voices = Clip(path, "What is said."), {1: "Bö"}
    client.jobs.create("Hello.", reference=reference, voices=voices, lexicons=["Names"], **options)
    body = client.requests[0].body
    assert b'name="reference_audio"; filename="ada.wav"' in body and b"RIFF\x00sound" in body
    for name, value in (
        ("reference_text", "What is said."), ("seed", "7"), ("voices", '{"1": "Bö"}'),
        ("lexicons", '["Names"]'), ("live", "true"), ("retention", "forever"),
        ("loudness", "-16.5"),
    ):  # fmt: skip
        assert f'name="{name}"\r\n\r\n{value}\r\n'.encode() in body, name


def test_voice_is_made_of_all_its_clips(client: FaultyClient) -> None:
    client.voices.create("Ada", [Clip(b"one", "First."), Clip(b"two", "Second.")], consent="Yes.")
    body = client.requests[0].body
    assert body.count(b'name="audio"') == body.count(b'name="transcript"') == 2
    assert body.index(b"First.") < body.index(b"Second.")
    assert b'name="consent_statement"\r\n\r\nYes.' in body


def test_cover_is_sent(client: FaultyClient, tmp_path: Path) -> None:
    cover = tmp_path / "c.png"
    cover.write_bytes(b"\x89PNG")
    client.books.set_cover(ID, cover)
    [sent] = client.requests
    assert (sent.method, sent.path) == ("PUT", f"{BOOK}/cover")
    assert b'filename="c.png"' in sent.body


def test_voice_is_the_one_that_the_server_takes_a_name_for(client: FaultyClient) -> None:
    found = [{"id": "1", "name": "Grace"}, {"id": "2", "name": "Ada"}]
    pages: tuple[list[dict[str, str]], ...] = ([found[1]], [], found)
    client.answers(*(json_answer({"next": None, "results": page}) for page in pages))
    assert client.voices.find("ADA")["id"] == "2"
    assert "means=ADA" in client.requests[0].path
    with pytest.raises(NotFoundError, match=r"'Linus'\. There are: Ada, Grace\.") as caught:
        client.voices.find("Linus")
    assert caught.value.code == "voice_not_found"


def test_wait_for_a_voice_ends_when_it_is_ready_or_failed(client: FaultyClient) -> None:
    states = ["pending", "encoding", "ready"]
    answers = ({"name": "Ada", "status": status} for status in states)
    client.answers(*(json_answer(one, Retry_After="3") for one in answers))
    seen: list[str] = []
    client.voices.wait_ready(ID, on_update=lambda voice: seen.append(voice["status"]))
    assert seen == states
    assert [one.path for one in client.requests] == [f"/api/v1/voices/{ID}?wait=1.000"] * 3
    assert len(client.pauses) == 2 and all(0 < one <= 1 for one in client.pauses), (
        "answered at once"
    )
    failed = {"status": "failed", "error_code": "clip_silent", "error_message": "No sound."}
    client.answers(json_answer(failed))
    with pytest.raises(VoiceFailedError, match="No sound") as caught:
        client.voices.wait_ready(ID)
    assert caught.value.code == "clip_silent"


def test_wait_for_a_job_survives_a_server_that_is_started_again(client: FaultyClient) -> None:
    running, ended = ({"id": ID, "status": status} for status in ("running", "partial"))
    starting = [problem(503, "starting")] * 8
    client.answers(json_answer(running), *starting, json_answer(ended))
    assert client.jobs.wait(ID)["status"] == "partial"
    assert len(client.pauses) == 9, "more than the usual three repetitions"


def test_wait_asks_the_server_to_wait_and_never_spins(client: FaultyClient) -> None:
    running, ended = ({"id": ID, "status": status} for status in ("running", "succeeded"))
    client.answers(json_answer(running, Retry_After="2"), json_answer(ended))
    client.jobs.wait(ID)
    client.jobs.wait(ID, on_update=lambda job: None)
    paths = [request.path for request in client.requests]
    assert paths[0] == f"/api/v1/jobs/{ID}?wait=25.000" and paths[-1].endswith("?wait=1.000")
    assert len(client.pauses) == 1 and 1 < client.pauses[0] <= 2, "the server answered at once"


@pytest.mark.parametrize(
    "wait",
    [
        lambda tts: tts.jobs.wait(ID, timeout=0.05),
        lambda tts: tts.voices.wait_ready(ID, timeout=0.05),
        lambda tts: tts.books.wait_file(ID, FILE, timeout=0),
    ],
)
def test_time_of_a_wait_is_bounded(client: FaultyClient, wait: Callable[[Client], object]) -> None:
    client.answers(json_answer({"id": ID, "name": "Ada", "status": "running"}))
    with pytest.raises(WaitTimeoutError):
        wait(client)


@pytest.mark.parametrize("wrong", ["", "..", "1/../../voices", "Ada", "?x=1"])
def test_what_is_no_id_reaches_no_address(client: FaultyClient, wrong: str) -> None:
    calls = (client.jobs.get, client.jobs.delete, client.voices.delete, client.jobs.cancel)
    for call in (*calls, lambda one: client.books.file(ID, one)):
        with pytest.raises(NotFoundError, match="is not the id of a") as refused:
            call(wrong)
    assert refused.value.code == "book_file_not_found"
    assert client.requests == []


def test_file_is_asked_for_with_its_options_and_after_a_broken_line(client: FaultyClient) -> None:
    client.answers(Answer(cut=0), json_answer({"id": FILE, "status": "queued"}, 202))
    assert client.books.request_file(ID, "sample", minutes=2, partial=True)["id"] == FILE
    assert [(one.method, one.path) for one in client.requests] == [("POST", f"{BOOK}/files")] * 2
    assert client.sent == {"kind": "sample", "minutes": 2, "partial": True}


def test_file_is_waited_for_and_written(client: FaultyClient, tmp_path: Path) -> None:
    states, seen = ["queued", "claimed", "done"], []
    answers = (json_answer({"id": FILE, "status": one}) for one in states)
    client.answers(*answers, Answer(body=b"sound", headers={"ETag": '"abc"'}))
    file = client.books.wait_file(ID, FILE, on_update=lambda one: seen.append(one["status"]))
    path = client.books.download_file(ID, file["id"], tmp_path / "out" / "a.m4b")
    assert (seen, len(client.pauses), path.read_bytes()) == (states, 2, b"sound")
    assert client.requests[-1].path == f"{BOOK}/files/{FILE}/content"


def test_lists_go_on_with_their_filters_over_all_pages(client: FaultyClient) -> None:
    for path, listed in (
        (f"{BOOK}/files", lambda: client.books.files(ID)),
        ("/api/v1/review", lambda: client.review.list(flag="noise,level", approved=True)),
    ):
        client.requests.clear()
        more = f"{client.url}{path}?cursor=x"
        pages = ({"results": [{"id": 1}], "next": more}, {"results": [{"id": 2}], "next": None})
        client.answers(*map(json_answer, pages))
        assert [one["id"] for one in listed()] == [1, 2], path
        assert "cursor=x" in client.requests[1].path, path
    for request in client.requests:
        assert "approved=true" in request.path and "flag=noise%2Clevel" in request.path


def test_file_is_deleted_and_a_take_that_changed_is_a_conflict(client: FaultyClient) -> None:
    client.answers(Answer(204, b""), problem(409, "take_changed"))
    client.books.delete_file(ID, FILE)
    assert (client.requests[0].method, client.requests[0].path) == (
        "DELETE",
        f"{BOOK}/files/{FILE}",
    )
    with pytest.raises(ConflictError) as caught:
        client.review.approve(7, FILE)
    assert caught.value.code == "take_changed"
