"""Each kind of file of a book, asked for over REST, made by a worker, read by other readers."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import av
import pytest
from lxml import etree

from tests.workers.book_files.epubs import check
from tests.workers.books.spoken_book import CHAPTERS, SpokenBook

pytestmark = pytest.mark.django_db(transaction=True)
TITLES = [title for title, _ in CHAPTERS]


def opened(content: bytes, form: str | None = None) -> Any:
    return av.open(io.BytesIO(content), format=form)


def packed(content: bytes) -> zipfile.ZipFile:
    archive = zipfile.ZipFile(io.BytesIO(content))
    assert archive.testzip() is None
    return archive


def test_m4b_is_put_together_of_what_the_main_file_encoded(spoken: SpokenBook) -> None:
    export = spoken.job.exports.get()
    answer = spoken.made("m4b")
    assert spoken.encoded(answer) == (0, 3)
    assert answer["sha256"] == export.sha256
    assert (answer["filename"], answer["content_type"]) == ("Cattle.m4b", "audio/mp4")
    assert 0 < len(export.peaks) <= 1000
    assert max(export.peaks) > 100
    with opened(spoken.content(answer)) as book:
        assert [one["metadata"]["title"] for one in book.chapters()] == TITLES
    again = spoken.ask("m4b")
    assert (again.status_code, again.json()["id"]) == (200, answer["id"])


def test_chapters_are_mp3_of_a_constant_rate_with_tags_and_one_is_had_by_itself(
    spoken: SpokenBook,
) -> None:
    archive = packed(spoken.content(spoken.made("chapters")))
    names = [f"{n:02d} - {title}.mp3" for n, title in enumerate(TITLES, 1)]
    assert archive.namelist() == names
    for number, (name, title) in enumerate(zip(names, TITLES, strict=True), 1):
        with opened(archive.read(name), "mp3") as chapter:
            assert chapter.streams.audio[0].bit_rate == 192_000
            tags = [chapter.metadata[tag] for tag in ("title", "track", "album")]
            assert tags == [title, f"{number}/3", "Cattle"]

    early = spoken.api.get(f"{spoken.path}/audio?chapter=1")
    answer = spoken.made("chapters", chapter=1)
    late: Any = spoken.api.get(f"{spoken.path}/audio?chapter=1")
    assert (early.status_code, early.json()["code"]) == (404, "chapter_not_made")
    assert late["Content-Type"] == "audio/mpeg"
    content = b"".join(late.streaming_content)
    assert content == spoken.content(answer)
    with opened(content, "mp3") as chapter:
        assert chapter.metadata["track"] == "2/3"
    part = spoken.api.get(answer["content_url"], headers={"Range": "bytes=0-9"})
    assert (part.status_code, part["Content-Range"]) == (206, f"bytes 0-9/{len(content)}")


def test_one_file_holds_all_chapters(spoken: SpokenBook) -> None:
    for kind in ("mp3", "opus", "flac"):
        answer = spoken.made(kind)
        with opened(spoken.content(answer)) as book:
            assert book.streams.audio[0].codec_context.name.startswith(kind)
            assert len(book.chapters()) == 3
            assert book.duration / 1e6 == pytest.approx(answer["duration_seconds"], abs=0.2)
        rows = answer["report"]["chapters"]
        assert [row["title"] for row in rows] == TITLES
        assert all(abs(row["loudness_lufs"] + 18) < 1 for row in rows)
        assert all(row["true_peak_dbtp"] < 0 for row in rows)


def test_read_along_is_the_own_epub_with_times(spoken: SpokenBook) -> None:
    answer = spoken.made("read_along")
    assert answer["report"]["unplaced_segments"] == 0
    overlays = check(io.BytesIO(spoken.content(answer)))
    assert len(overlays) == 3
    assert sum(map(len, overlays.values())) == spoken.job.segments_total
    assert all("/read-along/" in audio for one in overlays.values() for _, audio, _, _ in one)
    assert spoken.encoded(answer) == (0, 3)
    made = spoken.made("read_along", format="made")
    assert "OEBPS/package.opf" in packed(spoken.content(made)).namelist()


def test_shelf_subtitles_and_sample_of_a_book(spoken: SpokenBook) -> None:
    shelf = packed(spoken.content(spoken.made("shelf")))
    folder = "A. Drover/Cattle {Ada}/"
    names = [f"{folder}{name}" for name in ("Cattle.m4b", "cover.jpg", "metadata.json")]
    assert sorted(shelf.namelist()) == names
    sidecar = json.loads(shelf.read(f"{folder}metadata.json"))
    assert [one["title"] for one in sidecar["chapters"]] == TITLES

    srt, vtt = spoken.made("srt"), spoken.made("vtt", chapter=1)
    text, part = spoken.content(srt).decode(), spoken.content(vtt).decode()
    assert text.count("-->") == spoken.job.segments_total
    assert "The last ox has gone away." in text
    assert (part[:6], part.count("-->")) == ("WEBVTT", 2)
    assert vtt["filename"] == "Cattle - 02 - Oxen of the Hill.vtt"

    answer = spoken.made("sample", minutes=0.1, chapter=0)
    with opened(spoken.content(answer), "mp3") as sample:
        assert sample.duration / 1e6 <= 6.1
        assert sample.streams.audio[0].bit_rate == 192_000
    assert answer["duration_seconds"] <= 6.0


def test_report_says_of_each_chapter_whether_it_is_as_the_shop_asks(spoken: SpokenBook) -> None:
    answer = spoken.made("report", preset="acx")
    report = json.loads(spoken.content(answer))
    assert answer["options"]["format"] == "mp3"
    assert report["mastering"]["name"] == "acx"
    assert [row["title"] for row in report["chapters"]] == TITLES
    assert all(-23 <= row["rms_dbfs"] <= -18 for row in report["chapters"])
    assert all(row["true_peak_dbtp"] <= -3 for row in report["chapters"])
    assert all(row["passed"] for row in report["chapters"]), report
    assert report["assembly_realtime"] > 0
    plot = spoken.api.get(answer["plot_url"])
    assert plot["Content-Type"] == "image/svg+xml"
    assert len(etree.fromstring(plot.content).findall(".//{*}g")) == 3
