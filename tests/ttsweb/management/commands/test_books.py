"""Many books at once from the command line: a folder, a manifest, samples first; real workers."""

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


def wait_state(live: Live, batch_id: str, status: str) -> dict[str, Any]:
    for _ in range(TIMEOUT):
        found = live.client.book_batches.poll(batch_id, 1.0)
        if found["status"] == status:
            return dict(found)
    raise AssertionError(f"{batch_id} is {found['status']}, not {status}")


def test_manifest_with_samples_first_is_approved_and_lands_on_the_shelf(
    live: Live, library: Path, tmp_path: Path
) -> None:
    out, heard = tmp_path / "shelf", tmp_path / "heard"
    arguments = ("render", "--manifest", str(library / "list.csv"), "--voice", "Ada",
                 "--sample", "hold", "--out", str(out))  # fmt: skip

    begun = live.call(*arguments, "--json")
    assert begun.returncode == 0, begun.stderr
    batch_id = json.loads(begun.stdout)["id"]
    wait_state(live, batch_id, "to_approve")
    samples = live.call("book_batches", "samples", batch_id, "--out", str(heard), "--json")
    entries = list(live.client.book_batches.entries(batch_id))
    assert [one["state"] for one in entries] == ["sampled"] * 3
    live.call("books", "approve", str(entries[1]["book"]))
    live.call("book_batches", "approve", batch_id)
    ended = live.call("book_batches", "wait", batch_id, "--out", str(out), "--json")

    assert ended.returncode == 0, ended.stderr
    assert len(json.loads(samples.stdout)["samples"]) == len(list(heard.glob("*.mp3"))) == 3
    for path in heard.glob("*.mp3"):
        with av.open(str(path)) as audio:
            assert audio.duration is not None
            assert audio.duration > 0
    answer = json.loads(ended.stdout)
    totals = answer["report"]["totals"]
    assert totals["states"]["succeeded"] == 3
    assert totals["takes_reused"] >= 3, "the samples' takes are used again"
    assert [row["title"] for row in answer["report"]["books"]]
    written = sorted(path.relative_to(out) for path in out.rglob("*.m4b"))
    assert len(written) == 3
    assert {"Oxen"} <= {part for path in written for part in path.parts}
    again = live.call(*arguments, "--follow", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["batch"]["id"] == batch_id, "the same call finds its batch"
    assert sorted(path.relative_to(out) for path in out.rglob("*.m4b")) == written
    shown = live.call("book_batches", "show", batch_id)
    assert "3 books" in shown.stdout
    assert "3 succeeded" in shown.stdout


def test_folder_is_rendered_flat_and_nothing_of_others_is_written_over(
    live: Live, library: Path, tmp_path: Path
) -> None:
    out = tmp_path / "flat"
    (out / "more").mkdir(parents=True)
    (out / "more" / "two.mp3").write_bytes(b"mine")
    arguments = ("render", str(library), "--voice", "Ada", "--format", "mp3", "--layout", "flat",
                 "--out", str(out), "--follow", "--json")  # fmt: skip

    ended = live.call(*arguments)

    answer = json.loads(ended.stdout)
    assert ended.returncode == 1
    assert answer["batch"]["counts"]["succeeded"] == 3
    assert list(answer["errors"]) == ["more/two.epub"]
    assert "file_exists" in answer["errors"]["more/two.epub"]
    assert (out / "more" / "two.mp3").read_bytes() == b"mine"
    assert (out / "one.mp3").is_file()
    (out / "more" / "two.mp3").unlink()
    assert live.call(*arguments).returncode == 0
    assert (out / "more" / "two.mp3").stat().st_size > 1000
    live.client.book_batches.delete(answer["batch"]["id"])


def test_file_that_is_not_there_is_told_before_anything_is_made(live: Live, library: Path) -> None:
    (library / "one.epub").unlink()
    before = [batch["id"] for batch in live.client.book_batches.list()]
    ended = live.call("render", "--manifest", str(library / "list.csv"), "--voice", "Ada")
    assert ended.returncode == 1
    assert "one.epub" in ended.stderr
    assert [batch["id"] for batch in live.client.book_batches.list()] == before


def test_bad_lines_of_a_manifest_are_all_named(live: Live, library: Path) -> None:
    manifest = library / "bad.jsonl"
    lines = [{"file": "one.epub", "voice": "Nobody"}, {"file": "one.epub", "voice": "Ada", "x": 1}]
    manifest.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    ended = live.call("render", "--manifest", str(manifest))

    assert ended.returncode == 1
    assert "line 1" in ended.stderr
    assert "line 2" in ended.stderr


def test_one_book_is_listed_planned_started_and_downloaded(
    live: Live, library: Path, tmp_path: Path
) -> None:
    sent = live.client.books.upload(library / "one.epub", voice="Ada", format="mp3")
    live.client.books.wait_planned(sent["id"], timeout=TIMEOUT)

    plan = live.call("books", "plan", sent["id"])
    left_out = live.call("books", "plan", sent["id"], "--exclude", "1:1", "--json")
    listed = live.call("books", "plan", sent["id"])
    included = live.call("books", "plan", sent["id"], "--include", "1:1", "--json")
    assert [one["reason"] for one in json.loads(left_out.stdout)["skipped"]] == ["excluded"]
    assert f"1:1: {TITLES[0]} came home." in listed.stdout
    assert json.loads(included.stdout)["skipped"] == []
    assert live.call("books", "plan", sent["id"], "--include", "9:9").returncode == 2
    started = live.call("books", "start", sent["id"])
    ended = live.call(
        "books", "download", sent["id"], "--follow", "-o", str(tmp_path / "a.mp3"), "--json"
    )
    made = live.call("books", "download", sent["id"], "--kind", "srt", "-o", str(tmp_path))

    assert TITLES[0] in plan.stdout
    assert started.returncode == 0, started.stderr
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "a.mp3").stat().st_size > 1000
    assert made.returncode == 0, made.stderr
    assert "-->" in (tmp_path / "one.srt").read_text()
    assert sent["id"] in live.call("books", "ls").stdout
    assert "srt" in live.call("books", "files", sent["id"]).stdout
    assert live.call("books", "show", sent["id"]).returncode == 0
    assert live.call("books", "delete", sent["id"]).returncode == 0
    assert live.call("books", "show", sent["id"]).returncode == 1
