"""`render` of a book: sent, planned, spoken by the built-in model, and written as an M4B."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import av
import pytest

from tests.ttsweb.management.commands.conftest import Live
from tests.workers.books.test_book_jobs import epub

CHAPTERS = (
    ("The Garden", "The old gate was open again.\nNobody had closed it."),
    ("The River", "Water ran under the bridge all night."),
)


def test_book_becomes_an_m4b_and_the_same_book_again_renders_nothing(
    live: Live, tmp_path: Path
) -> None:
    book, target = tmp_path / "cattle.epub", tmp_path / "out" / "book.m4b"
    book.write_bytes(epub(*CHAPTERS))
    arguments = ("render", str(book), "--voice", "Ada", "--out", str(target), "--follow", "--json")

    first, again = live.call(*arguments), live.call(*arguments)

    for ended in (first, again):
        assert ended.returncode == 0, ended.stderr
    answer, second = json.loads(first.stdout), json.loads(again.stdout)
    assert (answer["status"], answer["title"]) == ("succeeded", "Cattle")
    assert answer["progress"]["takes_rendered"] >= answer["progress"]["segments_total"]
    assert second["progress"]["takes_rendered"] == 0
    assert second["progress"]["takes_reused"] == answer["progress"]["segments_total"]
    with av.open(str(target)) as written:
        assert [one["metadata"]["title"] for one in written.chapters()] == [
            title for title, _ in CHAPTERS
        ]
    proof = live.client.books.proof(answer["id"])
    assert proof["is_complete"]
    assert proof["spoken_chars"] + proof["skipped_chars"] == proof["spine_chars"]


TITLES = ("The Garden", "The River")
GARDEN = "The old gate was open again.\nNobody had closed it."
RIVER = "Water ran under the bridge all night."
EDITIONS = [
    pytest.param((GARDEN, RIVER), (0, 0), id="same"),
    pytest.param((GARDEN, "Water ran under the bridge all day."), (1, 1), id="edited"),
    pytest.param((f"It rained.\n{GARDEN}", RIVER), (1, 1), id="inserted"),
]


@pytest.fixture(scope="module")
def first_edition(live: Live, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("first") / "cattle.epub"
    path.write_bytes(epub(*zip(TITLES, (GARDEN, RIVER), strict=True)))
    target = path.with_name("book.m4b")
    ended = live.call("render", str(path), "--voice", "Ada", "--out", str(target), "--follow")
    assert ended.returncode == 0, ended.stderr


def report_of(live: Live, book: Any) -> dict[str, Any]:
    found = live.client.jobs.get(str(book["job"]))["file"]
    assert found is not None
    return dict(found)


@pytest.mark.usefixtures("first_edition")
@pytest.mark.parametrize(("texts", "made"), EDITIONS)
def test_another_edition_renders_and_encodes_what_is_new_and_another_format_nothing(
    live: Live, tmp_path: Path, texts: tuple[str, str], made: tuple[int, int]
) -> None:
    path = tmp_path / "cattle.epub"
    path.write_bytes(epub(*zip(TITLES, texts, strict=True)))
    targets = [tmp_path / "book.m4b", tmp_path / "book.flac"]

    answer = []
    for target in targets:
        out = ("--out", str(target), "--follow", "--json")
        ended = live.call("render", str(path), "--voice", "Ada", *out)
        assert ended.returncode == 0, ended.stderr
        answer.append(json.loads(ended.stdout))

    rendered, encoded = made
    for found, count in zip(answer, (rendered, 0), strict=True):
        progress = found["progress"]
        assert progress["takes_rendered"] == count
        assert progress["takes_reused"] == progress["segments_total"] - count
    report = report_of(live, answer[0])
    assert (report["chapters_encoded"], report["chapters_reused"]) == (encoded, 2 - encoded)
    assert all(target.stat().st_size > 1000 for target in targets)


@pytest.mark.usefixtures("first_edition")
def test_book_without_one_of_its_chapters_renders_nothing(live: Live, tmp_path: Path) -> None:
    path = tmp_path / "cattle.epub"
    path.write_bytes(epub(*zip(TITLES, (GARDEN, RIVER), strict=True)))
    sent = live.client.books.upload(path, voice="Ada", format="m4b")
    book = live.client.books.wait_planned(sent["id"], timeout=60)
    plan = live.client.books.plan(book["id"])
    edit = {"edit": "exclude", "chapter": plan["chapters"][0]["id"]}
    live.client.books.edit(book["id"], [edit], plan_number=plan["plan_number"])

    live.client.books.start(book["id"])
    ended = live.client.books.wait(book["id"], timeout=120)

    assert ended["status"] == "succeeded"
    assert ended["progress"] is not None
    assert ended["progress"]["takes_rendered"] == 0
    report = report_of(live, ended)
    assert (report["chapters_encoded"], report["chapters_reused"]) == (0, 1)


def test_plan_of_a_book_is_read_and_edited_from_python(live: Live, tmp_path: Path) -> None:
    path = tmp_path / "cattle.epub"
    path.write_bytes(epub(*CHAPTERS))
    sent = live.client.books.upload(path, voice="Ada", notes="skip")

    book = live.client.books.wait_planned(sent["id"], timeout=60)
    plan = live.client.books.plan(book["id"])
    edit = {"edit": "exclude", "chapter": plan["chapters"][0]["id"]}
    edited = live.client.books.edit(book["id"], [edit], plan_number=plan["plan_number"])

    assert book["status"] == "planned"
    assert [chapter["included"] for chapter in edited["chapters"]] == [False, True]
    assert book["id"] in [one["id"] for one in live.client.books.list()]
    live.client.books.delete(book["id"])
    assert book["id"] not in [one["id"] for one in live.client.books.list()]
