"""Batches of books over REST: made of manifests, filled by uploads, acted on; what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from rest_framework.test import APIClient

from synth.models import Batch, BatchEntry, BookSource, RenderJob
from tests.answers import refusal_of
from tests.factories import make_user
from tests.synth.book_batches.conftest import MakeBatch, books_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("ada")]
BATCHES = "/api/v1/book-batches"
ENTRIES = [{"file": "a/one.txt", "metadata": {"title": "One"}}, {"file": "two.txt", "seed": 7}]


def make(api: APIClient, key: str = "", **fields: Any) -> Any:
    body = {"entries": ENTRIES, "defaults": {"voice": "Ada", "format": "wav"}, **fields}
    headers = {"Idempotency-Key": key} if key else {}
    return api.post(BATCHES, body, format="json", headers=headers)


def send_form(api: APIClient, path: str, form: dict[str, Any], key: str = "") -> Any:
    headers = {"Idempotency-Key": key} if key else {}
    return api.post(path, form, format="multipart", headers=headers)


def make_of_form(
    api: APIClient, manifest: str, files: list[str], key: str = "", **fields: Any
) -> Any:
    form = {
        "manifest": SimpleUploadedFile("list.csv", manifest.encode()),
        "files": [SimpleUploadedFile(name, b"Some words.") for name in files],
    }
    return send_form(api, BATCHES, form | fields, key)


def upload(api: APIClient, batch: str, name: str, key: str = "", **fields: Any) -> Any:
    form = {"file": SimpleUploadedFile(name, b"Some words."), "book_batch": batch, **fields}
    return send_form(api, "/api/v1/books", form, key)


def path_of(batch: Batch | str, rest: str = "") -> str:
    return f"{BATCHES}/{batch if isinstance(batch, str) else batch.pk}{rest}"


def test_entries_wait_for_their_files_and_then_have_what_their_lines_said(api: APIClient) -> None:
    answer = make(api, name="Autumn", sample="hold")

    assert answer.status_code == 202, answer.json()
    shown = answer.json()
    assert (shown["status"], shown["sample"], shown["name"]) == ("open", "hold", "Autumn")
    assert shown["counts"]["missing"] == 2
    one = upload(api, shown["id"], "one.txt")
    two = upload(api, shown["id"], "anything.bin", entry="two.txt", notes="end")

    assert (one.status_code, two.status_code) == (202, 202), (one.json(), two.json())
    books = {book.filename: book for book in BookSource.objects.all()}
    assert books["one.txt"].options["voice"] == "Ada"
    assert books["one.txt"].metadata == {"title": "One"}
    assert not books["one.txt"].start_wanted
    other = books["anything.bin"]
    assert (other.options["seed"], other.policies) == (7, {"notes": "end"})
    rows = api.get(path_of(shown["id"], "/entries")).json()["results"]
    assert [(row["file"], row["state"], row["title"]) for row in rows] == [
        ("a/one.txt", "importing", "One"),
        ("two.txt", "importing", "anything.bin"),
    ]
    assert rows[0]["stored_bytes"]["uploads"] == len(b"Some words.")


def test_same_key_makes_one_batch_and_one_book_however_often_it_is_sent(api: APIClient) -> None:
    first, same = make(api, "k"), make(api, "k")
    other = make(api, "k", name="Other")
    batch = first.json()["id"]
    book, again = upload(api, batch, "one.txt", "b"), upload(api, batch, "one.txt", "b")

    assert first.json()["id"] == same.json()["id"]
    assert (first.status_code, same.status_code) == (202, 200)
    assert (book.status_code, again.status_code) == (202, 200)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert book.json()["id"] == again.json()["id"]
    assert (Batch.objects.count(), BookSource.objects.count()) == (1, 1)


BAD_ENTRIES: list[tuple[Any, str | None, str]] = [
    ({"file": ""}, "entries.1.file", "file_invalid"),
    ({"file": "../x.epub"}, "entries.1.file", "file_outside"),
    ({"file": "/etc/passwd"}, "entries.1.file", "file_outside"),
    ({"file": "C:\\x.epub"}, "entries.1.file", "file_outside"),
    ({"file": "a/"}, "entries.1.file", "file_outside"),
    ({"file": "a\nb"}, "entries.1.file", "file_invalid"),
    ({"file": "a\0b"}, "entries.1.file", "null_characters_not_allowed"),
    ({"file": "x" * 256}, "entries.1.file", "max_length"),
    ({"file": 7}, "entries.1.file", "invalid"),
    ({"file": "a/one.txt"}, "entries.1.file", "file_duplicate"),
    ({"voice": "Ada"}, "entries.1.file", "required"),
    ({"file": "b", "voice": "Nobody"}, "entries.1.voice", "voice_not_found"),
    ({"file": "b", "voices": {"0": "Ada"}, "voice": "Ada"}, None, "voice_ambiguous"),
    ({"file": "b", "start": True}, "entries.1.start", "unknown_field"),
    ({"file": "b", "book_batch": "x"}, "entries.1.book_batch", "unknown_field"),
    ({"file": "b", "seed": "7"}, "entries.1.seed", "invalid"),
    ({"file": "b", "metadata": {"date": "May"}}, "entries.1.metadata.date", "date_invalid"),
    ({"file": "b", "metadata": {"mood": "x"}}, "entries.1.metadata.mood", "unknown_field"),
    ({"file": "b", "format": "wav", "bit_rate": 64000}, None, "bit_rate_unfit"),
    ("b.epub", "entries.1", "not_an_object"),
]


def test_bad_entry_is_named_and_nothing_is_made(api: APIClient) -> None:
    for entry, attr, code in BAD_ENTRIES:
        answer = make(api, entries=[ENTRIES[0], entry])
        shown = answer.json()
        assert (answer.status_code, shown["code"]) == (400, "book_batch_entries_invalid"), entry
        error = shown["errors"][0]
        assert (error["code"], error["index"]) == (code, 1), entry
        assert attr in (None, error["attr"]), entry
    assert not Batch.objects.exists()


def test_bad_entries_may_be_skipped_and_are_told_for_ever(api: APIClient) -> None:
    manifest = "file;voice\none.txt;Ada\ntwo.txt;Nobody\n"
    answer = make_of_form(api, manifest, ["one.txt"], on_error="skip", closed="true")
    shown = answer.json()
    assert answer.status_code == 202, shown
    assert [(one["line"], one["code"]) for one in shown["skipped"]] == [(3, "voice_not_found")]
    assert (shown["counts"]["importing"], shown["closed_at"] is not None) == (1, True)
    assert api.get(path_of(shown["id"])).json()["skipped"] == shown["skipped"]


def test_what_is_wrong_with_the_batch_itself_is_refused(api: APIClient) -> None:
    wrong: list[tuple[str, str, Any]] = [
        ("unknown_field", "defaults", {"voice": "Ada", "mood": "sad"}),
        ("unknown_field", "defaults", {"file": "a"}),
        ("invalid", "defaults", []),
        ("invalid", "entries", {}),
        ("invalid_choice", "sample", "all"),
        ("url_scheme", "webhook", "ftp://x"),
        ("invalid", "closed", "yes"),
        ("book_batch_file_missing", "closed", True),
        ("not_one_line", "name", "a\nb"),
        ("unknown_field", "mood", 1),
    ]
    for code, field, value in wrong:
        answer = make(api, **{field: value})
        assert (answer.status_code < 500, answer.json()["code"]) == (True, code), (field, value)
    answer = make(api, defaults={})
    assert [one["code"] for one in answer.json()["errors"]] == ["voice_required"] * 2
    body = '{"entries": [{"file": "\\ud800"}], "defaults": {"voice": "Ada"}}'
    answer = api.post(BATCHES, body, content_type="application/json")
    assert answer.status_code == 400, answer.json()
    assert answer.json()["errors"][0]["attr"] == "entries.0.file"
    assert not Batch.objects.exists()


def test_uploads_that_fit_no_entry_are_refused(api: APIClient) -> None:
    entries = [{"file": "a/one.txt"}, {"file": "b/one.txt"}, {"file": "Two.txt", "seed": 7}]
    batch = make(api, entries=entries).json()["id"]

    def refusal(name: str, **fields: Any) -> tuple[int, str]:
        return refusal_of(upload(api, batch, name, **fields))

    assert refusal("three.txt") == (404, "entry_not_found")
    assert refusal("two.txt") == (404, "entry_not_found")
    assert refusal("one.txt") == (409, "entry_ambiguous")
    assert refusal("Two.txt", seed="8") == (400, "given_by_entry")
    assert refusal("Two.txt", start="true") == (400, "given_by_entry")
    assert refusal("Two.txt", voices='{"0": "Ada"}') == (400, "voice_ambiguous")
    assert refusal("Two.txt", mood="sad") == (400, "unknown_field")
    assert upload(api, batch, "Two.txt", entry="a/one.txt").status_code == 202
    assert refusal("one.txt", entry="a/one.txt") == (409, "entry_has_file")
    assert upload(api, "x", "one.txt").json()["code"] == "invalid"
    form = {"file": SimpleUploadedFile("a.txt", b"x"), "entry": "a.txt"}
    assert api.post("/api/v1/books", form, format="multipart").json()["code"] == "invalid"
    assert BookSource.objects.count() == 1


def test_entries_join_an_open_batch_and_a_closed_one_takes_nothing(
    api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synth.api.batches.entries.MAX_BATCH_BOOKS", 4)
    batch = make(api).json()["id"]

    def add(*files: str) -> Any:
        entries = {"entries": [{"file": file} for file in files]}
        return api.post(path_of(batch, "/entries"), entries, format="json")

    added, twice, many = add("3.txt"), add("3.txt"), add("4", "5")
    closed = api.post(path_of(batch, "/close"))
    late = add("4.txt")

    assert added.json()["counts"]["missing"] == 3
    assert twice.json()["errors"][0]["code"] == "file_duplicate"
    assert (many.status_code, many.json()["code"]) == (413, "book_batch_too_many")
    assert closed.json()["closed_at"] is not None
    assert (late.status_code, late.json()["code"]) == (409, "book_batch_closed")
    assert upload(api, batch, "one.txt").json()["code"] == "book_batch_closed"
    assert list(BatchEntry.objects.values_list("index", flat=True)) == [0, 1, 2]


def test_request_that_broke_off_after_some_files_is_sent_again(api: APIClient) -> None:
    def send() -> Any:
        manifest = "file,voice\none.txt,Ada\ntwo.txt,Ada\n"
        return make_of_form(api, manifest, ["one.txt", "two.txt"], "k")

    first = send().json()
    BookSource.objects.get(filename="two.txt").delete()  # as if its upload had not come through
    answers = [send(), send()]

    assert {answer.json()["id"] for answer in answers} == {first["id"]}
    assert [answer.status_code for answer in answers] == [202, 200]  # one file came, then none
    assert answers[0].json()["counts"]["importing"] == 2
    assert BookSource.objects.count() == 2


def test_others_upload_nothing_to_a_batch(
    batch_of: MakeBatch, client_of: Callable[[User], APIClient]
) -> None:
    assert (
        upload(client_of(make_user("stranger")), str(batch_of(1).pk), "0.epub").status_code == 404
    )


def test_deleting_a_batch_leaves_nothing(
    api: APIClient, batch_of: MakeBatch, stored_objects: Callable[[], list[str]]
) -> None:
    batch = batch_of(2)
    assert api.delete(path_of(batch)).status_code == 204
    assert stored_objects() == []
    assert not BookSource.objects.exists() and not RenderJob.objects.exists()
    assert api.get(path_of(batch)).status_code == 404


def test_list_and_entries_ask_the_database_a_bounded_number_of_times(
    api: APIClient, batch_of: MakeBatch, django_assert_max_num_queries: Any
) -> None:
    for _ in range(3):
        batch_of(4)
    large = batch_of(0, is_closed=False)
    BatchEntry.objects.bulk_create(
        BatchEntry(batch=large, index=n, filename=f"{n}.txt") for n in range(200)
    )

    with django_assert_max_num_queries(20):
        listed = api.get(BATCHES)
    with django_assert_max_num_queries(25):
        page = api.get(path_of(large, "/entries?limit=200"))

    assert listed.json()["results"][0]["counts"]["missing"] == 200
    assert len(page.json()["results"]) == 200


def test_states_filter_the_entries_and_the_summary_comes_with_the_end(
    api: APIClient, batch_of: MakeBatch
) -> None:
    batch = batch_of(2)
    BookSource.objects.filter(pk=books_of(batch)[1].pk).update(state="failed", error_code="drm")

    failed = api.get(path_of(batch, "/entries?state=failed")).json()["results"]
    report = api.get(path_of(batch, "/report"))

    assert [(row["index"], row["error_code"]) for row in failed] == [(1, "drm")]
    assert api.get(path_of(batch, "/entries?state=broken")).status_code == 400
    assert (report.status_code, report.json()["code"]) == (409, "book_batch_not_ended")


def test_manifest_in_json_lines_takes_the_same_fields(api: APIClient) -> None:
    lines = [{"file": "one.txt", "voice": "Ada", "metadata": {"authors": ["A", "B"]}}]
    manifest = "\n".join(json.dumps(one) for one in lines)
    answer = make_of_form(api, manifest, ["one.txt"])
    assert answer.status_code == 202, answer.json()
    assert BookSource.objects.get().metadata == {"authors": ["A", "B"]}
