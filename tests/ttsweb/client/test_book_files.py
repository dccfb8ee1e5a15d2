"""The client's files, metadata and covers of books: what is sent, waited for and written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ttsweb.client.faulty_server import Answer, FaultyServer, json_answer, problem
from ttsweb.client import Client, NotFoundError, WaitTimeoutError

BOOK = "5b0f4a0e-0d53-4bbb-8ad1-3f4e4b1b2f11"
FILE = "9d3c2e52-6a34-4bb0-9c3c-7b4b7a2f0e55"
PATH = f"/api/v1/books/{BOOK}"


def test_file_is_asked_for_with_its_options_and_again_after_a_broken_line(
    client: Client, faulty: FaultyServer
) -> None:
    faulty.script = [Answer(cut=0), json_answer({"id": FILE, "status": "queued"}, 202)]
    file = client.books.request_file(BOOK, "sample", minutes=2, partial=True)
    assert file["id"] == FILE
    assert [(one.method, one.path) for one in faulty.requests] == [("POST", f"{PATH}/files")] * 2
    wanted = {"kind": "sample", "minutes": 2, "partial": True}
    assert json.loads(faulty.requests[-1].body) == wanted


def test_file_is_waited_for_and_written(
    client: Client, faulty: FaultyServer, tmp_path: Path, pauses: list[float]
) -> None:
    states = [json_answer({"id": FILE, "status": one}) for one in ("queued", "claimed", "done")]
    faulty.script = [*states, Answer(body=b"sound", headers={"ETag": '"abc"'})]
    seen: list[str] = []

    file = client.books.wait_file(BOOK, FILE, on_update=lambda one: seen.append(one["status"]))
    path = client.books.download_file(BOOK, file["id"], tmp_path / "out" / "a.m4b")

    assert seen == ["queued", "claimed", "done"]
    assert len(pauses) == 2
    assert path.read_bytes() == b"sound"
    assert faulty.requests[-1].path == f"{PATH}/files/{FILE}/content"


def test_wait_for_a_file_ends_with_its_time(client: Client, faulty: FaultyServer) -> None:
    faulty.script = [json_answer({"id": FILE, "status": "queued"})]
    with pytest.raises(WaitTimeoutError):
        client.books.wait_file(BOOK, FILE, timeout=0)


def test_files_of_all_pages_are_listed_and_one_is_deleted(
    client: Client, faulty: FaultyServer
) -> None:
    more = f"{faulty.url}{PATH}/files?cursor=x"
    faulty.script = [
        json_answer({"results": [{"id": "1"}], "next": more}),
        json_answer({"results": [{"id": "2"}], "next": None}),
        Answer(204, b""),
    ]

    ids = [one["id"] for one in client.books.files(BOOK)]
    client.books.delete_file(BOOK, FILE)

    assert ids == ["1", "2"]
    assert (faulty.requests[-1].method, faulty.requests[-1].path) == (
        "DELETE",
        f"{PATH}/files/{FILE}",
    )


def test_metadata_and_cover_are_sent(client: Client, faulty: FaultyServer, tmp_path: Path) -> None:
    cover = tmp_path / "c.png"
    cover.write_bytes(b"\x89PNG")

    client.books.set_metadata(BOOK, {"title": "Kine"}, series=None)
    client.books.set_cover(BOOK, cover)

    said, sent = faulty.requests
    assert (said.method, said.path) == ("PATCH", PATH)
    assert json.loads(said.body) == {"metadata": {"title": "Kine", "series": None}}
    assert (sent.method, sent.path) == ("PUT", f"{PATH}/cover")
    assert b'filename="c.png"' in sent.body


def test_what_is_no_id_is_not_sent(client: Client, faulty: FaultyServer) -> None:
    faulty.script = [problem(404, "not_found")]
    with pytest.raises(NotFoundError) as refused:
        client.books.file(BOOK, "../..")
    assert refused.value.code == "book_file_not_found"
    assert faulty.requests == []
