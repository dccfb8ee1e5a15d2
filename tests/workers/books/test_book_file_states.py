"""Files of books through what goes wrong and what changes: nothing is lost, nothing is stale."""

from __future__ import annotations

import errno
import io
import os
import zipfile
from pathlib import Path
from typing import Any

import av
import pytest
from django.contrib.auth.models import User
from django.core.files.storage import default_storage
from django.db.models import Q
from pytest_django import Settings

from synth.audiobooks.files import request_file
from synth.audiobooks.plans import load_plan
from synth.audiobooks.start import start_book
from synth.jobs.submit import Sender
from synth.models import BookFile, JobVoice, RenderJob, Segment
from synth.transitions.segment_edits import choose_take, render_again
from tests.factories import make_user, make_voice
from tests.workers.books.spoken_book import SpokenBook, speak, start, store_epub
from tests.workers.books.test_book_file_jobs import opened, packed
from tests.workers.books.test_book_jobs import epub, upload, wait_read
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import Pair, new_voice, wait_encoded, wait_ended, wait_for
from ttsweb.work import Kind
from workers import sweep
from workers.book_files.chapter_encodes import EncodeCache
from workers.process.claiming import take
from workers.sweep import free_lost

pytestmark = pytest.mark.django_db(transaction=True)


def test_upload_is_read_in_a_child_and_what_is_no_book_fails_with_its_reason(
    owner: User, worker: MiniatureProcess
) -> None:
    whole = epub(("Oxen", "Ox one."))
    picture = b"\x89PNG\r\n\x1a\n" + bytes(500)
    books = [upload(owner, content) for content in (whole, whole[:300], picture)]
    while take(worker, Kind.BOOK):
        worker.run_all()
    for book in books:
        book.refresh_from_db()

    assert [book.state for book in books] == ["planned", "failed", "failed"]
    assert (books[0].title, books[0].figures["included"]) == ("Cattle", 1)
    assert books[1].error_code.startswith("book_")
    assert books[1].error_message
    assert books[2].error_code == "book_format_unknown"


@pytest.fixture
def book(owner: User, worker: MiniatureProcess, tmp_path: Path) -> SpokenBook:
    """A book of which the first chapter and a part of the second are spoken."""
    started = start(store_epub(owner, tmp_path), owner, worker)
    speak(4)
    return started


def test_chapters_that_are_complete_make_a_partial_file_and_later_the_whole_one(
    book: SpokenBook,
) -> None:
    refused = book.ask("chapters")
    answer = book.made("chapters", partial=True)
    names = packed(book.content(answer)).namelist()
    speak()
    book.work()
    stale = book.shown(answer)
    whole = book.made("chapters")

    assert (refused.status_code, refused.json()["code"]) == (409, "book_not_finished")
    assert answer["is_partial"]
    assert names == ["01 - Oxen of the Plain.mp3"]
    assert [one["index"] for one in answer["report"]["chapters_missing"]] == [1, 2]
    assert (stale["is_current"], stale["status"]) == (False, "done")
    assert (whole["id"], whole["is_partial"]) == (answer["id"], False)
    assert len(packed(book.content(whole)).namelist()) == 3
    assert book.encoded(whole) == (2, 1)


def test_other_takes_make_a_file_anew_and_encode_their_chapter_alone(spoken: SpokenBook) -> None:
    answer = spoken.made("m4b")
    segment = spoken.job.segments.order_by("chapter__index", "index")[1]
    first = segment.take_id
    assert render_again(segment.pk)
    waits = spoken.ask("m4b")
    speak()
    spoken.work()

    stale = spoken.shown(answer)
    newer = spoken.made("m4b")
    assert first is not None
    assert choose_take(segment.pk, first)
    spoken.work()
    older = spoken.made("m4b")

    assert (waits.status_code, waits.json()["code"]) == (409, "book_not_finished")
    assert not stale["is_current"]
    assert newer["sha256"] != answer["sha256"] == older["sha256"]
    assert older["report"]["chapters_encoded"] == 0
    assert not [one for one in stored() if newer["sha256"] in one]
    assert BookFile.objects.count() == 1


def test_other_tags_and_another_cover_encode_nothing(spoken: SpokenBook) -> None:
    before = spoken.made("m4b")
    said = {"title": "Kine", "narrators": ["Somebody"], "series": "Herds", "series_index": "2"}
    spoken.api.patch(spoken.path, {"metadata": said}, format="json")
    answer = spoken.made("m4b")
    assert answer["id"] == before["id"]
    assert spoken.encoded(answer) == (0, 3)
    assert answer["filename"] == "Kine.m4b"
    with opened(spoken.content(answer)) as book:
        assert book.metadata["title"] == "Kine"
        assert book.metadata["composer"] == "Somebody"
    shelf = packed(spoken.content(spoken.made("shelf"))).namelist()
    assert "A. Drover/Herds/2 - Kine {Somebody}/Kine.m4b" in shelf


def test_full_disk_waits_without_spending_an_attempt(
    spoken: SpokenBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = spoken.ask("srt").json()

    def full(*_: Any, **__: Any) -> str:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(default_storage, "save", full)
        spoken.work()
    waiting = spoken.row(asked)
    assert (waiting.status, waiting.attempts, waiting.key) == ("queued", 0, "")
    assert not spoken.process.may_claim
    assert list(spoken.process.scratch.iterdir()) == []
    spoken.work_again()
    assert spoken.row(asked).status == "done"


def test_file_of_a_killed_worker_is_made_by_another_one(spoken: SpokenBook) -> None:
    asked = spoken.ask("srt").json()
    dead = MiniatureProcess(None, name="dead", role="cpu")
    assert take(dead, Kind.BOOK_FILE) == 1  # and nothing more: it was killed
    assert take(spoken.process, Kind.BOOK_FILE) == 0

    assert free_lost(Q(claimed_by="dead")) == 1
    spoken.work()
    done = spoken.row(asked)
    dead.run_all()  # it was only slow

    assert (done.status, done.attempts, done.losses) == ("done", 1, 1)
    assert spoken.row(asked).key == done.key
    assert default_storage.exists(done.key)


def test_file_that_is_deleted_while_it_is_made_leaves_no_object(spoken: SpokenBook) -> None:
    asked = spoken.ask("srt").json()
    assert take(spoken.process, Kind.BOOK_FILE) == 1
    before = stored()
    spoken.api.delete(f"{spoken.path}/files/{asked['id']}")
    spoken.process.run_all()
    assert stored() == before


def test_take_whose_audio_is_lost_is_rendered_again_and_the_file_waits(spoken: SpokenBook) -> None:
    segment = spoken.job.segments.select_related("take").first()
    assert segment is not None
    assert segment.take is not None
    default_storage.delete(segment.take.audio_key)

    asked = spoken.ask("flac").json()
    spoken.work()
    assert (spoken.row(asked).status, spoken.job.status) == ("queued", "running")
    assert Segment.objects.get(pk=segment.pk).status == "queued"
    spoken.work_again()
    assert spoken.row(asked).status == "queued"  # its chapter is still to come
    assert speak() == 1
    spoken.work_again()
    spoken.work()

    assert (spoken.row(asked).status, spoken.job.status) == ("done", "succeeded")


def test_cancelled_book_has_files_of_its_complete_chapters_alone(book: SpokenBook) -> None:
    book.api.post(f"{book.path}/cancel")
    whole = book.ask("srt")
    answer = book.made("srt", partial=True)
    assert (whole.status_code, whole.json()["code"]) == (409, "book_not_finished")
    assert "Retry-After" not in whole
    assert "Retry" in whole.json()["detail"]
    assert answer["is_partial"]
    assert len(answer["report"]["chapters"]) == 1


def test_quiet_voice_is_brought_to_the_narrator_s_level(
    owner: User, worker: MiniatureProcess, tmp_path: Path
) -> None:
    make_voice("Bob", shared=True)
    source = store_epub(owner, tmp_path)
    chapter = load_plan(source).included[1].id
    source.edits = [{"edit": "voice", "chapter": chapter, "voice": "Bob"}]
    source.save()
    book = start(source, owner, worker)
    assert JobVoice.objects.filter(job=book.job.pk).count() == 2
    speak(quiet_speakers=[1])
    book.work()

    report = book.job.exports.get().report
    answer = book.made("m4b")

    levels = {row["voice"]: row for row in report["voices"]}
    assert levels["Ada"]["gain_db"] == 0
    difference = levels["Ada"]["loudness_lufs"] - levels["Bob"]["loudness_lufs"]
    assert levels["Bob"]["gain_db"] == pytest.approx(difference, abs=0.26)
    assert difference == pytest.approx(6, abs=1)
    assert answer["report"]["voices"] == report["voices"]
    assert answer["report"]["chapters_encoded"] == 0


def test_preset_of_the_book_holds_for_its_main_file_and_for_the_others(
    owner: User, worker: MiniatureProcess, tmp_path: Path
) -> None:
    source = store_epub(owner, tmp_path, options={"format": "mp3"}, production={"preset": "acx"})
    book = start(source, owner, worker)
    speak()
    book.work()

    export = book.job.exports.get()
    assert export.report["preset"] == "acx"
    assert all(row["passed"] for row in export.report["chapters"]), export.report
    assert len(export.cues.cues) == book.job.segments_total
    with default_storage.open(export.key) as file:
        content = file.read()
    with av.open(io.BytesIO(content)) as audio:
        assert len(audio.chapters()) == 3
    answer = book.made("chapters")
    assert answer["options"]["preset"] == "acx"
    assert answer["report"]["passed"], answer["report"]
    assert RenderJob.objects.count() == 1


def stored() -> list[str]:
    root = Path(default_storage.path(""))
    return sorted(str(path) for path in root.rglob("*") if path.is_file())


@pytest.mark.thorough
def test_worker_that_is_killed_while_it_makes_a_file_leaves_it_to_the_next_one(pair: Pair) -> None:
    pair.start_worker().wait_ready()
    wait_encoded(new_voice("Ada"))
    user = make_user("owner")
    source = wait_read(upload(user, epub(("Oxen", "Ox one. Ox two.")), format="wav"))
    job = start_book(source)
    wait_ended(job)
    source.refresh_from_db()

    row, _ = request_file(source, "chapters", {"format": "flac"}, Sender(source.owner))
    rows = BookFile.objects.filter(pk=row.pk)
    wait_for(lambda: rows.get().status != "queued", what="a worker has the file")
    pair.workers[-1].kill()
    pair.start_worker(name="second").wait_ready()
    wait_for(lambda: rows.get().status in ("done", "failed"), what="the file is there")

    made = rows.get()
    assert (made.status, made.error_message) == ("done", "")
    path = pair.data_dir / "storage" / made.key
    with zipfile.ZipFile(path) as packed_files:
        assert packed_files.namelist() == ["01 - Oxen.flac"]


KEY = "ab" * 32


def written(path: Path, *, seconds_ago: float) -> Path:
    """Write a file that was last changed so long ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"half")
    then = path.stat().st_mtime - seconds_ago
    os.utime(path, (then, then))
    return path


def test_half_written_chapters_of_killed_workers_are_removed(settings: Settings) -> None:
    folder = settings.DATA_DIR / "cache" / "chapters" / KEY[:2]
    lost = written(folder / ".1.part", seconds_ago=20 * settings.LEASE_SECONDS)
    fresh = written(folder / ".2.part", seconds_ago=settings.LEASE_SECONDS)
    sweep.tidy()
    assert (lost.exists(), fresh.exists()) == (False, True)


def test_chapters_whose_facts_were_never_written_are_removed_after_a_day(tmp_path: Path) -> None:
    cache = EncodeCache(tmp_path)
    lost = written(cache.path(KEY), seconds_ago=2 * 86_400)
    other = written(cache.path("cd" * 32), seconds_ago=3_600)
    whole = written(cache.path("ef" * 32), seconds_ago=2 * 86_400)
    cache.finish("ef" * 32, {})
    cache.trim()
    assert (lost.exists(), other.exists(), whole.exists()) == (False, True, True)


def test_folder_of_a_file_that_is_being_made_is_never_a_leftover(
    spoken: SpokenBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = EncodeCache.finish
    swept: list[int] = []

    def slowly(self: EncodeCache, key: str, facts: dict[str, Any]) -> dict[str, Any]:
        finished = finish(self, key, facts)
        swept.append(sweep.remove_old_temporaries(spoken.process.scratch))
        age_all(spoken.process.scratch)  # and it takes a day to encode the next chapter
        return finished

    monkeypatch.setattr(EncodeCache, "finish", slowly)
    spoken.made("chapters", format="flac")
    assert swept == [0, 0, 0]


def age_all(folder: Path) -> None:
    """Make everything in a folder a day old."""
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (path.stat().st_mtime - 86_400,) * 2)
