"""Files of a book over REST: what is asked for, what is refused, and what goes with the book."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db.models import Q
from rest_framework.test import APIClient

from synth.audiobooks.files import content_of
from synth.audiobooks.start import start_book
from synth.models import BookFile, BookSource, JobVoice, RenderJob, Segment
from synth.transitions.files import finish_book_file
from tests.factories import claim_row, hold_row, make_take, make_voice
from tests.synth.books_api.shelf import path_of, speak_all, store_book
from ttsweb import leases
from ttsweb.leases import LOSSES_BESIDE_OTHERS
from ttsweb.storage import MadeFile
from workers.sweep import free_lost

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("ada")]


@pytest.fixture
def book(operator: User) -> BookSource:
    """A started book all of which is spoken."""
    found = store_book(operator)
    job = start_book(found)
    speak_all(job)
    RenderJob.objects.filter(pk=job.pk).update(status="succeeded")
    found.refresh_from_db()
    return found


def files_of(book: BookSource, rest: str = "") -> str:
    return path_of(book, f"/files{rest}")


def ask(api: APIClient, book: BookSource, kind: str = "m4b", **options: Any) -> Any:
    return api.post(files_of(book), {"kind": kind, **options}, format="json")


def finish(row_id: str, content_digest: str = "old") -> BookFile:
    """Make a file as a worker does, of ten bytes."""
    claim = hold_row(BookFile, row_id)
    key = default_storage.save(f"exports/{row_id}", ContentFile(b"0123456789"))
    made = MadeFile("a" * 64, 10, 1.0, key=key)
    assert finish_book_file(claim, made, content_digest=content_digest, is_partial=False)
    return BookFile.objects.get(pk=row_id)


def png(width: int, height: int) -> bytes:
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR"
    return head + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0) + bytes(60)


def test_same_request_names_the_same_file_and_a_worker_is_told_once(
    api: APIClient, book: BookSource, sent_tasks: Callable[[str], list[str]]
) -> None:
    first = ask(api, book, "chapters", bit_rate=128_000)
    again = ask(api, book, "chapters", bit_rate=128_000, format="mp3")
    other = ask(api, book, "chapters", bit_rate=64_000)

    assert (first.status_code, again.status_code) == (202, 202)
    assert first["Location"] == again["Location"] == files_of(book, f"/{first.json()['id']}")
    assert first["Retry-After"] == "2"
    assert other.json()["id"] != first.json()["id"]
    assert len(sent_tasks("make_book_file")) == 2
    assert first.json()["options"] == {
        "format": "mp3", "preset": "standard", "loudness": None, "sample_rate": None,
        "bit_rate": 128_000, "chapter": None,
    }  # fmt: skip
    listed = api.get(files_of(book)).json()["results"]
    assert [one["id"] for one in listed] == [other.json()["id"], first.json()["id"]]
    assert "report" not in listed[0]


def test_same_key_names_one_file_and_another_body_is_refused(
    api: APIClient, book: BookSource
) -> None:
    def send(key: str, **body: Any) -> Any:
        headers = {"Idempotency-Key": key}
        return api.post(files_of(book), {"kind": "m4b", **body}, format="json", headers=headers)

    first, same, other = send("a"), send("a"), send("a", preset="acx")
    assert (first.status_code, same.status_code) == (202, 200)  # it is not made yet
    second = send("b", preset="standard")  # which is the usual one: the file is the first one
    third = send("b")
    row = finish(first.json()["id"])  # of older takes
    again, without = send("a"), ask(api, book)

    assert first.json()["id"] == same.json()["id"] == second.json()["id"]
    for refused in (other, third):
        assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")
    assert (again.status_code, again.json()["id"]) == (200, str(row.pk))
    assert without.status_code == 202
    assert set(again.json()["options"]) == {"preset", "loudness", "bit_rate", "sample_rate"}
    assert BookFile.objects.count() == 1
    api.delete(files_of(book, f"/{row.pk}"))
    assert send("a", preset="acx").status_code == 202


@pytest.mark.parametrize(
    ("body", "code", "attr"),
    [
        ({"kind": "ogg"}, "invalid_choice", "kind"),
        ({}, "required", "kind"),
        ({"kind": "m4b", "format": "mp3"}, "option_unfit", "format"),
        ({"kind": "m4b", "chapter": 1}, "option_unfit", "chapter"),
        ({"kind": "wav", "bit_rate": 64_000}, "option_unfit", "bit_rate"),
        ({"kind": "srt", "preset": "acx"}, "option_unfit", "preset"),
        ({"kind": "chapters", "format": "m4b"}, "option_unfit", "format"),
        ({"kind": "shelf", "format": "own"}, "option_unfit", "format"),
        ({"kind": "mp3", "preset": "acx", "loudness": -18}, "loudness_unfit", "loudness"),
        ({"kind": "mp3", "bit_rate": 65_000}, "bit_rate_unfit", "bit_rate"),
        ({"kind": "opus", "sample_rate": 44_100}, "sample_rate_unfit", "sample_rate"),
        ({"kind": "chapters", "format": "flac", "bit_rate": 64_000}, "bit_rate_unfit", "bit_rate"),
        ({"kind": "sample", "minutes": 0}, "out_of_range", "minutes"),
        ({"kind": "sample", "minutes": 5.5}, "out_of_range", "minutes"),
        ({"kind": "srt", "chapter": 3}, "chapter_unknown", "chapter"),
        ({"kind": "srt", "chapter": "1"}, "invalid", "chapter"),
        ({"kind": "srt", "chapter": True}, "invalid", "chapter"),
        ({"kind": "m4b", "partial": 1}, "invalid", "partial"),
        ({"kind": "m4b", "tempo": 1}, "unknown_field", "tempo"),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else None,
)
def test_what_does_not_fit_is_refused_by_name(
    api: APIClient, book: BookSource, body: dict[str, Any], code: str, attr: str
) -> None:
    answer = api.post(files_of(book), body, format="json")

    assert (answer.status_code, answer.json()["code"]) == (400, code), answer.json()
    assert [one["attr"] for one in answer.json()["errors"]] == [attr]
    assert not BookFile.objects.exists()


def test_book_that_is_not_started_or_not_spoken_has_no_files(
    api: APIClient, operator: User
) -> None:
    planned = store_book(operator)
    early = ask(api, planned)
    job = start_book(planned)
    nothing = ask(api, planned, partial=True)
    segments = speak_all(job)
    last = [one.pk for one in segments if one.chapter.index == 2]
    Segment.objects.filter(pk__in=last).update(status="queued", take=None)

    whole, partial = ask(api, planned), ask(api, planned, partial=True)
    one = ask(api, planned, "chapters", chapter=0)
    other = ask(api, planned, "chapters", chapter=2)

    assert (early.status_code, early.json()["code"]) == (409, "book_not_started")
    assert (nothing.status_code, nothing.json()["code"]) == (409, "book_not_finished")
    assert (whole.status_code, whole.json()["code"]) == (409, "book_not_finished")
    assert whole["Retry-After"] == "2"
    assert (partial.status_code, partial.json()["is_partial"]) == (202, True)
    assert (one.status_code, one.json()["is_partial"]) == (202, False)
    assert (other.status_code, other.json()["code"]) == (409, "book_not_finished")


def test_file_of_older_takes_is_told_and_made_anew(
    api: APIClient, book: BookSource, stored_objects: Callable[[], list[str]]
) -> None:
    row = finish(ask(api, book).json()["id"])
    before = stored_objects()

    shown = api.get(files_of(book, f"/{row.pk}")).json()
    again = ask(api, book)

    assert (shown["status"], shown["is_current"]) == ("done", False)
    assert (again.status_code, again.json()["id"]) == (202, str(row.pk))
    assert again.json()["content_url"] is None
    assert set(before) - set(stored_objects()) == {row.key}


def test_file_of_the_takes_of_now_is_there_until_its_object_is_lost(
    api: APIClient, book: BookSource
) -> None:
    assert book.job is not None
    row = finish(ask(api, book).json()["id"], content_of(book, book.job).digest())

    there = ask(api, book)
    whole: Any = api.get(files_of(book, f"/{row.pk}/content"))
    default_storage.delete(row.key)
    gone = api.get(files_of(book, f"/{row.pk}/content"))
    again = ask(api, book)

    assert (there.status_code, there.json()["is_current"]) == (200, True)
    assert b"".join(whole.streaming_content) == b"0123456789"
    assert whole["ETag"] == f'"{"a" * 64}"'
    assert 'filename="A Small Book.m4b"' in whole["Content-Disposition"]
    assert (gone.status_code, gone.json()["code"]) == (410, "audio_gone")
    assert again.status_code == 202


def test_file_of_a_chapter_is_of_older_levels_once_another_chapters_takes_change(
    book: BookSource,
) -> None:
    job, bob = book.job, make_voice("Bob", shared=True).current_version
    assert job is not None and bob is not None
    JobVoice.objects.create(job=job, speaker=1, version=bob, role="chapter")
    Segment.objects.filter(chapter__in=job.chapters.filter(index=1)).update(speaker=1)
    before = content_of(book, job)

    make_take([Segment.objects.filter(job=job, chapter__index=2)[0]])

    now = content_of(book, job)
    same = [now.digest(chapter) == before.digest(chapter) for chapter in (0, 1, 2)]
    assert same == [True, False, False]  # the narrator's own level is nobody's gain
    assert now.digest() != before.digest()


def test_file_that_is_not_there_yet_says_so(api: APIClient, book: BookSource) -> None:
    shown = ask(api, book).json()

    parts = ("content", "plot")
    early = {part: api.get(files_of(book, f"/{shown['id']}/{part}")) for part in parts}
    claim = hold_row(BookFile, shown["id"])
    assert leases.fail(BookFile, claim, code="no_chapters", message="There is none.")
    failed = api.get(files_of(book, f"/{shown['id']}/content"))

    for part, answer in early.items():
        assert (answer.status_code, answer.json()["code"]) == (409, "book_file_not_ready"), part
    assert (failed.status_code, failed.json()["code"]) == (409, "book_file_failed")
    assert "There is none." in failed.json()["detail"]
    assert ask(api, book).status_code == 202


def test_deleted_file_is_gone_and_a_late_worker_changes_nothing(
    api: APIClient, book: BookSource, stored_objects: Callable[[], list[str]]
) -> None:
    before = stored_objects()
    row = finish(ask(api, book).json()["id"])
    late = ask(api, book, "wav").json()["id"]
    claim = hold_row(BookFile, late)

    answers = [api.delete(files_of(book, f"/{one}")) for one in (row.pk, late)]

    assert [one.status_code for one in answers] == [204, 204]
    made = MadeFile("a" * 64, 10, 1.0, key="late")
    assert not finish_book_file(claim, made, content_digest="", is_partial=False)
    assert stored_objects() == before
    assert api.get(files_of(book, f"/{late}")).json()["code"] == "book_file_not_found"


def test_file_below_another_book_is_not_there_and_files_go_with_theirs(
    api: APIClient, book: BookSource, operator: User, stored_objects: Callable[[], list[str]]
) -> None:
    row, other = finish(ask(api, book).json()["id"]), store_book(operator)
    foreign = api.get(files_of(other, f"/{row.pk}"))
    assert (foreign.status_code, foreign.json()["code"]) == (404, "book_file_not_found")
    for one in (book, other):
        assert api.delete(path_of(one)).status_code == 204
    assert not BookFile.objects.exists()
    assert stored_objects() == []


def test_claim_of_a_dead_worker_is_freed_and_fails_after_too_many(
    api: APIClient, book: BookSource, settings: Any
) -> None:
    file_id = ask(api, book).json()["id"]

    for _ in range(LOSSES_BESIDE_OTHERS + settings.MAX_ATTEMPTS):
        assert claim_row(BookFile, file_id, worker="dead") is not None
        assert free_lost(Q(claimed_by="dead")) == 1

    shown = api.get(files_of(book, f"/{file_id}")).json()
    assert (shown["status"], shown["error_code"]) == ("failed", "worker_lost")


def test_metadata_takes_the_place_of_the_file_s_until_it_is_taken_back(
    api: APIClient, book: BookSource
) -> None:
    said = {"title": "Another", "authors": ["A. Body"], "series_index": "2.5", "rights": ""}
    changed = api.patch(path_of(book), {"metadata": said}, format="json")
    back = api.patch(path_of(book), {"metadata": {"title": None}}, format="json")
    shown = api.get(path_of(book, "/metadata")).json()

    assert changed.status_code == 200, changed.json()
    assert (changed.json()["title"], changed.json()["authors"]) == ("Another", ["A. Body"])
    assert back.json()["title"] == "A Small Book"
    assert shown["file"] == {"title": "A Small Book", "authors": ["Nobody"], "language": "en"}
    assert shown["set"] == {"authors": ["A. Body"], "series_index": "2.5", "rights": ""}
    assert shown["shown"] == shown["file"] | shown["set"]


def test_metadata_that_tags_cannot_hold_is_refused(api: APIClient, book: BookSource) -> None:
    wrong: list[tuple[str, Any]] = [
        *(("title", ""), ("title", 7), ("title", "a\0b"), ("authors", "One")),
        *(("date", "1895-02-30"), ("series_index", "two"), ("language", "not a tag")),
        ("isbn", "1"),
    ]
    for name, value in wrong:
        answer = api.patch(path_of(book), {"metadata": {name: value}}, format="json")
        assert answer.status_code == 400, (name, value)
        found = [one["attr"] for one in answer.json()["errors"]]
        assert f"metadata.{name}" in found, (name, value)
    answer = api.patch(path_of(book), {"metadata": []}, format="json")
    assert [one["attr"] for one in answer.json()["errors"]] == ["metadata"]
    book.refresh_from_db()
    assert book.metadata == {}


def test_cover_is_replaced_served_and_taken_away(
    api: APIClient, book: BookSource, stored_objects: Callable[[], list[str]]
) -> None:
    before = stored_objects()
    none = api.get(path_of(book, "/cover"))
    for size in (10, 20):
        form = {"file": SimpleUploadedFile("../c.jpg", png(size, size))}
        put = api.put(path_of(book, "/cover"), form, format="multipart")
    got: Any = api.get(path_of(book, "/cover"))

    assert (none.status_code, none.json()["code"]) == (404, "book_without_cover")
    assert (put.status_code, put.json()["cover_url"]) == (200, path_of(book, "/cover"))
    assert got["Content-Type"] == "image/png"
    assert b"".join(got.streaming_content) == png(20, 20)
    assert len(stored_objects()) == len(before) + 1
    assert api.delete(path_of(book, "/cover")).status_code == 204
    assert stored_objects() == before


def test_cover_that_cannot_be_used_is_refused_before_it_is_decoded(
    api: APIClient, book: BookSource, stored_objects: Callable[[], list[str]]
) -> None:
    before = stored_objects()
    for content, status, code in (
        (png(30_000, 30_000), 413, "cover_too_large"),
        (png(0, 10), 400, "cover_unreadable"),
        (b"GIF89a" + bytes(50), 400, "cover_unreadable"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 400, "cover_unreadable"),
        (b"", 400, "cover_unreadable"),
        (bytes(20 * 2**20 + 1), 413, "cover_too_large"),
    ):
        form = {"file": SimpleUploadedFile("c.jpg", content)}
        answer = api.put(path_of(book, "/cover"), form, format="multipart")
        assert (answer.status_code, answer.json()["code"]) == (status, code), content[:9]
    assert stored_objects() == before


def test_upload_keeps_preset_and_metadata_that_fit(api: APIClient) -> None:
    def send(**fields: str) -> Any:
        form = {"file": SimpleUploadedFile("a.txt", b"Some words."), **fields}
        return api.post("/api/v1/books", form, format="multipart")

    answer = send(preset="acx", metadata='{"title": "Mine", "authors": null}')

    assert (answer.status_code, answer.json()["title"]) == (202, "Mine")
    found = BookSource.objects.get()
    assert (found.production, found.metadata) == ({"preset": "acx"}, {"title": "Mine"})
    for fields, code in (
        ({"preset": "acx", "loudness": "-18"}, "loudness_unfit"),
        ({"preset": "acx", "format": "aac"}, "preset_unfit"),
        ({"preset": "loud"}, "invalid_choice"),
        ({"metadata": '{"title": ""}'}, "blank"),
    ):
        answer = send(**fields)
        assert (answer.status_code, answer.json()["code"]) == (400, code), fields
