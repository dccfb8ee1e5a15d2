"""Books over REST: uploaded, looked at, edited, started, stopped; and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from pytest_django import Settings
from rest_framework.test import APIClient

from synth.models import BookSource, RenderJob
from tests.answers import refusal_of
from tests.factories import make_voice
from tests.synth.books_api.shelf import CHAPTERS, path_of, store_book

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("ada")]
BOOKS = "/api/v1/books"


def send(api: APIClient, content: bytes = b"Some words.", key: str = "", **fields: Any) -> Any:
    form = {"file": SimpleUploadedFile("../a book.txt", content), **fields}
    headers = {"Idempotency-Key": key} if key else {}
    return api.post(BOOKS, form, format="multipart", headers=headers)


def test_uploaded_book_is_kept_and_waits_for_a_worker(
    api: APIClient, sent_tasks: Callable[[str], list[str]], stored_objects: Callable[[], list[str]]
) -> None:
    answer = send(api, voice="Ada", notes="end", pauses='{"paragraph": 500}')

    assert answer.status_code == 202, answer.json()
    shown = answer.json()
    assert (shown["status"], shown["job"], shown["plan"]) == ("importing", None, None)
    assert (shown["filename"], shown["size_bytes"]) == ("a book.txt", 11)
    assert shown["policies"] == {"notes": "end"}
    assert shown["options"]["pauses"] == {"paragraph": 500}
    assert shown["options"]["format"] == "m4b"
    assert len(stored_objects()) == 1
    assert BookSource.objects.get(pk=shown["id"]).sent_at is not None
    assert len(sent_tasks("import_book")) == 1
    assert api.get(answer["Location"]).json()["id"] == shown["id"]


def test_same_key_and_body_make_one_book_and_another_body_is_refused(
    api: APIClient, stored_objects: Callable[[], list[str]]
) -> None:
    first, same = send(api, key="k", voice="Ada"), send(api, key="k", voice="Ada")
    other = send(api, b"Other words.", key="k", voice="Ada")

    assert first.json()["id"] == same.json()["id"]
    assert (first.status_code, same.status_code) == (202, 200)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert len(stored_objects()) == BookSource.objects.count() == 1


def test_what_cannot_be_done_is_refused_before_anything_is_kept(
    api: APIClient, stored_objects: Callable[[], list[str]]
) -> None:
    refused: list[tuple[int, str, dict[str, Any]]] = [
        (404, "voice_not_found", {"voice": "Nobody"}),
        (400, "null_characters_not_allowed", {"voice": "A\0da"}),
        (400, "voice_required", {"start": "true"}),
        (400, "invalid", {"start": "yes"}),
        (400, "invalid_choice", {"notes": "all"}),
        (400, "unknown_field", {"live": "true"}),
        (400, "bit_rate_unfit", {"format": "flac", "bit_rate": "64000"}),
        (400, "voice_ambiguous", {"voice": "Ada", "voices": '{"0": "Ada"}'}),
    ]
    for status, code, fields in refused:
        answer = send(api, **fields)
        assert (answer.status_code, answer.json()["code"]) == (status, code), fields
    assert stored_objects() == []


def test_file_that_is_empty_or_too_large_is_refused(api: APIClient, settings: Settings) -> None:
    settings.MAX_BOOK_BYTES, settings.MAX_CLIP_BYTES = 100, 50

    empty, large, fits = send(api, b""), send(api, b"x" * 101), send(api, b"x" * 100)

    assert (empty.status_code, empty.json()["code"]) == (400, "book_empty")
    assert (large.status_code, large.json()["code"]) == (413, "book_too_large")
    assert fits.status_code == 202  # a clip may not be so large


def test_plan_says_what_is_spoken_and_why_the_rest_is_not(api: APIClient, operator: User) -> None:
    plan = api.get(path_of(store_book(operator), "/plan")).json()

    spoken = [chapter["title"] for chapter in plan["chapters"] if chapter["included"]]
    assert spoken == [title for title, _ in CHAPTERS]
    left_out = {chapter["reason"] for chapter in plan["chapters"] if not chapter["included"]}
    assert left_out == {"title_page", "licence"}
    sums = plan["completeness"]
    assert sums["spoken"] + sum(sums["skipped"].values()) == sums["source_chars"]
    assert (plan["plan_number"], plan["edits"]) == (1, [])


def test_edits_change_the_plan_and_what_is_then_started(api: APIClient, operator: User) -> None:
    book = store_book(operator)
    plan = api.get(path_of(book, "/plan")).json()
    ids = {chapter["title"]: chapter["id"] for chapter in plan["chapters"]}
    edits = [
        {"edit": "exclude", "chapter": ids["The River"]},
        {"edit": "rename", "chapter": ids["The Return"], "title": "Home"},
    ]

    changed = api.patch(path_of(book, "/plan"), {"edits": edits, "plan_number": 1})
    started = api.post(path_of(book, "/start"))

    assert changed.status_code == 200, changed.json()
    assert changed.json()["plan_number"] == 2
    assert changed.json()["completeness"]["skipped"]["excluded"] > 0
    assert started.status_code == 202, started.json()
    job = RenderJob.objects.get()
    assert [chapter.title for chapter in job.chapters.all()] == ["The Garden", "Home"]
    late = api.patch(path_of(book, "/plan"), {"edits": edits})
    assert (late.status_code, late.json()["code"]) == (409, "book_started")


def test_a_text_is_left_out_of_a_chapter_and_a_page_is_included(
    api: APIClient, operator: User
) -> None:
    book = store_book(operator)
    chapters = api.get(path_of(book, "/plan")).json()["chapters"]
    assert chapters[0]["beginning"] == "A Small Book by Nobody"
    edits = [
        {"edit": "exclude", "chapter": chapters[1]["id"], "block": 1},
        {"edit": "include", "reason": "title_page"},
    ]

    plan = api.patch(path_of(book, "/plan"), {"edits": edits}).json()
    blocks = api.get(path_of(book, f"/plan/chapters/{chapters[1]['id']}")).json()["blocks"]

    row = {"chapter": chapters[1]["id"], "block": 1, "included": False, "can_be_included": True}
    assert [row.items() <= one.items() for one in plan["skipped"]] == [True]
    assert plan["chapters"][0]["included"]
    assert plan["completeness"]["missing"] == []
    assert [one["reason"] for one in blocks] == [None, "excluded"]
    assert api.post(path_of(book, "/start")).status_code == 202
    spoken = " ".join(segment.text for segment in RenderJob.objects.get().segments.all())
    assert "Nobody" in spoken
    assert "The old gate" not in spoken


def test_edit_that_does_not_fit_changes_nothing(api: APIClient, operator: User) -> None:
    book = store_book(operator)
    wrong: list[tuple[Any, str]] = [
        ([{"edit": "include", "chapter": "none"}], "chapter_unknown"),
        ([{"edit": "include", "reason": "boredom"}], "edit_invalid"),
        ([{"edit": "sing", "chapter": "none"}], "edit_invalid"),
        ([{"edit": ["include"]}], "edit_invalid"),
        ([{"edit": "include", "chapter": 7}], "edit_invalid"),
        ([7], "invalid"),
        ("all", "invalid"),
    ]
    bodies: list[tuple[dict[str, Any], str]] = [({"edits": edits}, code) for edits, code in wrong]
    bodies.append(({"edits": [], "more": 1}, "unknown_field"))
    bodies.append(({"edits": [], "plan_number": "1"}, "invalid"))

    for body, code in bodies:
        answer = api.patch(path_of(book, "/plan"), body)
        assert (answer.status_code, answer.json()["code"]) == (400, code), body
    book.refresh_from_db()
    assert (book.edits, book.plan_number) == ([], 1)
    assert api.patch(path_of(book, "/plan"), {"edits": []}).status_code == 200
    late = api.patch(path_of(book, "/plan"), {"edits": [], "plan_number": 1})
    assert (late.status_code, late.json()["code"]) == (409, "plan_changed")


def test_voice_that_is_not_there_reads_no_chapter(api: APIClient, operator: User) -> None:
    book = store_book(operator)
    chapter = api.get(path_of(book, "/plan")).json()["chapters"][1]["id"]
    for voice in ("Nobody", "a\0b", "\ud800"):
        body = json.dumps({"edits": [{"edit": "voice", "chapter": chapter, "voice": voice}]})
        answer = api.patch(path_of(book, "/plan"), body, content_type="application/json")
        assert answer.json()["code"] in ("voice_not_found", "voice_invalid"), repr(voice)
        assert answer.json()["status"] in (400, 404), repr(voice)


def test_book_is_started_paused_resumed_and_cancelled(api: APIClient, operator: User) -> None:
    book = store_book(operator)

    states = [
        api.post(path_of(book, f"/{action}")).json()["status"]
        for action in ("start", "pause", "resume", "cancel")
    ]

    assert states == ["queued", "paused", "queued", "cancelled"]
    again = api.post(path_of(book, "/retry"))
    assert (again.status_code, again.json()["status"]) == (202, "queued")
    progress = again.json()["progress"]
    assert (progress["chapters_total"], progress["chapters_done"]) == (3, 0)
    assert progress["segments_total"] == RenderJob.objects.get().segments_total


def test_book_that_was_not_started_has_nothing_to_stop(api: APIClient, operator: User) -> None:
    book = store_book(operator)
    for action in ("pause", "resume", "cancel", "retry", "audio", "proof"):
        send = api.get if action in ("audio", "proof") else api.post
        answer = send(path_of(book, f"/{action}"))
        assert refusal_of(answer) == (409, "book_not_started"), action


def test_start_takes_another_voice_and_refuses_what_it_does_not_know(
    api: APIClient, operator: User
) -> None:
    bob = make_voice("Bob", shared=True)
    book = store_book(operator, voice="Ada")

    odd = api.post(path_of(book, "/start"), {"speed": 2})
    answer = api.post(path_of(book, "/start"), {"voice": "Bob"})

    assert (odd.status_code, odd.json()["code"]) == (400, "unknown_field")
    assert answer.status_code == 202
    assert RenderJob.objects.get().voices.get().version.voice == bob


def test_book_whose_job_is_deleted_can_be_started_again_and_takes_its_next_one_along(
    api: APIClient, operator: User, stored_objects: Callable[[], list[str]]
) -> None:
    book = store_book(operator)
    job = api.post(path_of(book, "/start")).json()["job"]

    assert api.delete(f"/api/v1/jobs/{job}").status_code == 204
    assert api.get(path_of(book)).json()["status"] == "planned"
    assert api.post(path_of(book, "/start")).status_code == 202
    assert api.delete(path_of(book)).status_code == 204
    assert not RenderJob.objects.exists()
    assert stored_objects() == []
    assert api.get(path_of(book)).status_code == 404
