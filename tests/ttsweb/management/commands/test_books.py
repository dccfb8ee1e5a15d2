"""Books from the command line: one rendered, edited, found again; many by folder or manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import av
import pytest

from tests.ttsweb.management.commands.conftest import Live
from tests.workers.books.test_book_jobs import epub

TITLES = ("Oxen of the Plain", "Oxen of the Hill", "Oxen of the Sea")
TIMEOUT = 240


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder with a manifest of three small books of two chapters, two of them in a folder."""
    folder = tmp_path / "library"
    (folder / "more").mkdir(parents=True)
    names = ("one.epub", "more/two.epub", "more/three.epub")
    for name, title in zip(names, TITLES, strict=True):
        chapters = ((title, f"{title} came home."), (f"{title} again", "The lamp was out."))
        (folder / name).write_bytes(epub(*chapters))
    rows = [
        "file;title;series;series_index;authors",
        '"one.epub";The Plain;Oxen;1;"A. Drover; B. Herder"',
        "more/two.epub;The Hill;Oxen;2;",
        "more/three.epub;The Sea;;;",
    ]
    (folder / "list.csv").write_text("\r\n".join(rows), encoding="utf-8-sig")
    return folder


def wait_state(live: Live, batch_id: str, status: str) -> None:
    for _ in range(TIMEOUT):
        found = live.client.book_batches.poll(batch_id, 1.0)
        if found["status"] == status:
            return
    raise AssertionError(f"{batch_id} is {found['status']}, not {status}")


def written(out: Path) -> list[Path]:
    return sorted(path.relative_to(out) for path in out.rglob("*.m4b"))


def test_manifest_with_samples_first_is_approved_and_lands_on_the_shelf(
    live: Live, library: Path, tmp_path: Path
) -> None:
    out, heard = tmp_path / "shelf", tmp_path / "heard"
    arguments = ("render", "--manifest", library / "list.csv", "--voice", "Ada", "--sample", "hold",
                 "--out", out, "--json")  # fmt: skip

    batch_id = json.loads(live.done(*arguments))["id"]
    wait_state(live, batch_id, "to_approve")
    samples = live.done("book_batches", "samples", batch_id, "--out", heard, "--json")
    entries = list(live.client.book_batches.entries(batch_id))
    assert [one["state"] for one in entries] == ["sampled"] * 3
    live.done("books", "approve", entries[1]["book"])
    live.done("book_batches", "approve", batch_id)
    waited = live.done("book_batches", "wait", batch_id, "--out", out, "--json")

    assert len(json.loads(samples)["samples"]) == len(list(heard.glob("*.mp3"))) == 3
    report = json.loads(waited)["report"]
    for path in heard.glob("*.mp3"):
        with av.open(str(path)) as audio:
            assert audio.duration is not None and audio.duration > 0, path.name
    assert report["totals"]["states"]["succeeded"] == 3
    assert report["totals"]["takes_reused"] >= 3, "the samples' takes are used again"
    assert [row["title"] for row in report["books"]]
    files = written(out)
    assert len(files) == 3 and "Oxen" in {part for path in files for part in path.parts}
    again = json.loads(live.done(*arguments, "--follow"))
    assert again["batch"]["id"] == batch_id, "the same call finds its batch"
    assert written(out) == files
    shown = live.done("book_batches", "show", batch_id)
    assert "3 books" in shown and "3 succeeded" in shown


def test_folder_is_rendered_flat_over_no_other_file(
    live: Live, library: Path, tmp_path: Path
) -> None:
    out = tmp_path / "flat"
    (out / "more").mkdir(parents=True)
    (out / "more" / "two.mp3").write_bytes(b"mine")
    arguments = ("render", library, "--voice", "Ada", "--format", "mp3", "--layout", "flat",
                 "--out", out, "--follow", "--json")  # fmt: skip

    ended = live.call(*arguments)

    answer = json.loads(ended.stdout)
    assert ended.returncode == 1
    assert answer["batch"]["counts"]["succeeded"] == 3
    assert list(answer["errors"]) == ["more/two.epub"]
    assert "file_exists" in answer["errors"]["more/two.epub"]
    assert (out / "more" / "two.mp3").read_bytes() == b"mine"
    assert (out / "one.mp3").is_file()
    (out / "more" / "two.mp3").unlink()
    live.done(*arguments)
    assert (out / "more" / "two.mp3").stat().st_size > 1000
    live.client.book_batches.delete(answer["batch"]["id"])


def test_missing_file_and_bad_lines_of_a_manifest_make_nothing(live: Live, library: Path) -> None:
    lines = [{"file": "one.epub", "voice": "Nobody"}, {"file": "one.epub", "voice": "Ada", "x": 1}]
    manifest = library / "bad.jsonl"
    manifest.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    before = [batch["id"] for batch in live.client.book_batches.list()]
    bad = live.call("render", "--manifest", manifest)
    (library / "one.epub").unlink()
    missing = live.call("render", "--manifest", library / "list.csv", "--voice", "Ada")
    assert (bad.returncode, missing.returncode) == (1, 1)
    assert "line 1" in bad.stderr and "line 2" in bad.stderr
    assert "one.epub" in missing.stderr
    assert [batch["id"] for batch in live.client.book_batches.list()] == before


def test_one_book_is_planned_and_downloaded(live: Live, library: Path, tmp_path: Path) -> None:
    book = live.client.books.upload(library / "one.epub", voice="Ada", format="mp3")["id"]
    live.client.books.wait_planned(book, timeout=TIMEOUT)

    plan = live.done("books", "plan", book)
    left_out = json.loads(live.done("books", "plan", book, "--exclude", "1:1", "--json"))
    listed = live.done("books", "plan", book)
    included = json.loads(live.done("books", "plan", book, "--include", "1:1", "--json"))
    assert [one["reason"] for one in left_out["skipped"]] == ["excluded"]
    assert f"1:1: {TITLES[0]} came home." in listed
    assert included["skipped"] == []
    assert live.call("books", "plan", book, "--include", "9:9").returncode == 2
    live.done("books", "start", book)
    live.done("books", "download", book, "--follow", "-o", tmp_path / "a.mp3", "--json")
    live.done("books", "download", book, "--kind", "srt", "-o", tmp_path)

    assert TITLES[0] in plan
    assert (tmp_path / "a.mp3").stat().st_size > 1000
    assert "-->" in (tmp_path / "one.srt").read_text()
    assert book in live.done("books", "ls")
    assert "srt" in live.done("books", "files", book)
    live.done("books", "show", book)
    live.done("books", "delete", book)
    assert live.call("books", "show", book).returncode == 1


CHAPTERS = ("The Garden", "The River")
GARDEN = "The old gate was open again.\nNobody had closed it."
RIVER = "Water ran under the bridge all night."


def render(live: Live, target: Path, *texts: str) -> dict[str, Any]:
    """Render a book of two chapters with these texts to a file; return what is said of it."""
    path = target.with_name("cattle.epub")
    path.write_bytes(epub(*zip(CHAPTERS, texts, strict=True)))
    out = ("--out", target, "--follow", "--json")
    found: dict[str, Any] = json.loads(live.done("render", path, "--voice", "Ada", *out))
    return found


def chapters_made(live: Live, book: Any) -> tuple[int, int]:
    """Return how many chapters of a book's file were encoded, and how many were there."""
    report: Any = live.client.jobs.get(str(book["job"]))["file"]
    return report["chapters_encoded"], report["chapters_reused"]


@pytest.fixture(scope="module")
def first_edition(live: Live, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return render(live, tmp_path_factory.mktemp("first") / "book.m4b", GARDEN, RIVER)


def test_book_becomes_an_m4b(live: Live, first_edition: dict[str, Any]) -> None:
    assert (first_edition["status"], first_edition["title"]) == ("succeeded", "Cattle")
    progress = first_edition["progress"]
    assert progress["takes_rendered"] >= progress["segments_total"]
    with av.open(first_edition["audio_path"]) as written:
        titles = tuple(one["metadata"]["title"] for one in written.chapters())
    assert titles == CHAPTERS
    proof = live.client.books.proof(first_edition["id"])
    assert proof["is_complete"]
    assert proof["spoken_chars"] + proof["skipped_chars"] == proof["spine_chars"]


@pytest.mark.usefixtures("first_edition")
@pytest.mark.parametrize(
    ("texts", "count"),
    [
        pytest.param((GARDEN, RIVER), 0, id="same", marks=pytest.mark.thorough),
        pytest.param((GARDEN, "Water ran under the bridge all day."), 1, id="edited",
                     marks=pytest.mark.thorough),
        pytest.param((f"It rained.\n{GARDEN}", RIVER), 1, id="inserted"),
    ],
)  # fmt: skip
def test_another_edition_renders_and_encodes_what_is_new_and_another_format_nothing(
    live: Live, tmp_path: Path, texts: tuple[str, str], count: int
) -> None:
    books = [render(live, tmp_path / name, *texts) for name in ("book.m4b", "book.flac")]
    for book, rendered in zip(books, (count, 0), strict=True):
        progress = book["progress"]
        assert progress["takes_rendered"] == rendered
        assert progress["takes_reused"] == progress["segments_total"] - rendered
        assert Path(book["audio_path"]).stat().st_size > 1000
    assert chapters_made(live, books[0]) == (count, 2 - count)


@pytest.mark.usefixtures("first_edition")
def test_plan_is_edited_and_a_chapter_less_renders_nothing(live: Live, tmp_path: Path) -> None:
    books, path = live.client.books, tmp_path / "cattle.epub"
    path.write_bytes(epub(*zip(CHAPTERS, (GARDEN, RIVER), strict=True)))
    sent = books.upload(path, voice="Ada", format="m4b", notes="skip")
    book = books.wait_planned(sent["id"], timeout=60)
    plan = books.plan(book["id"])
    edit = {"edit": "exclude", "chapter": plan["chapters"][0]["id"]}
    edited = books.edit(book["id"], [edit], plan_number=plan["plan_number"])
    books.start(book["id"])
    ended = books.wait(book["id"], timeout=120)

    assert (book["status"], ended["status"]) == ("planned", "succeeded")
    assert [chapter["included"] for chapter in edited["chapters"]] == [False, True]
    assert ended["progress"] is not None and ended["progress"]["takes_rendered"] == 0
    assert chapters_made(live, ended) == (0, 1)
    assert book["id"] in [one["id"] for one in books.list()]
    books.delete(book["id"])
    assert book["id"] not in [one["id"] for one in books.list()]
