"""Batches over REST: what is taken, what is refused and how, and what is told of one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings
from rest_framework.test import APIClient

from synth.accounts.keys import create_key
from synth.models import Batch, Export, RenderJob, Segment
from synth.transitions.claims import claim_segments
from synth.transitions.files import claimable_exports
from synth.transitions.segments import fail_segment
from tests.factories import (
    CODEC_FINGERPRINT,
    claim_row,
    finish_export,
    finish_segment,
    make_take,
    make_voice,
)
from tests.synth.batches.conftest import Post
from voices.models import Voice

pytestmark = pytest.mark.django_db(transaction=True)
URL = "/api/v1/batches"
BOM = b"\xef\xbb\xbf"


def items_of(api: APIClient, batch: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get(f"{URL}/{batch['id']}/items").json()["results"]
    return found


def finish_items(**failures: str) -> None:
    """Render all that is queued; segments of the texts given fail."""
    for claim in claim_segments(worker="gpu", limit=100, codec_fingerprint=CODEC_FINGERPRINT):
        text = Segment.objects.get(pk=claim.pk).text
        if text in failures.values():
            fail_segment(claim, code="bad", message="It is bad.")
        else:
            finish_segment(claim, make_take())


def make_files() -> None:
    """Finish every export that waits, with an object of its own."""
    for export in claimable_exports():
        claim = claim_row(Export, export.pk, worker="cpu")
        assert claim is not None
        key = default_storage.save(f"exports/{export.pk}", ContentFile(b"0123456789"))
        finish_export(claim, key=key, size_bytes=10, sha256="d" * 64, duration_seconds=1.0)


def test_items_become_jobs_with_their_names_and_options(post: Post, api: APIClient) -> None:
    answer = post(
        [{"custom_id": "one", "text": "First.", "format": "mp3", "seed": 7}, {"text": "Second."}],
        defaults={"voice": "Ada", "format": "flac"},
    )

    assert answer.status_code == 202
    assert answer["Location"] == f"{URL}/{answer.json()['id']}"
    batch = answer.json()
    first, second = items_of(api, batch)
    assert (batch["status"], batch["items_total"], batch["counts"]["queued"]) == ("queued", 2, 2)
    assert batch["priority"] == "bulk"
    assert (first["custom_id"], first["format"], first["seed"]) == ("one", "mp3", 7)
    assert (second["custom_id"], second["format"]) == ("item-00002", "flac")
    assert (second["item_index"], second["batch"]) == (1, batch["id"])
    assert api.get(f"/api/v1/jobs/{first['id']}").json()["text"] == "First."
    assert Segment.objects.count() == 2


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("media_type", ["application/x-ndjson", "application/jsonl"])
def test_lines_may_have_a_byte_order_mark_blanks_and_carriage_returns(
    api: APIClient, ada: Voice, end: bytes, media_type: str
) -> None:
    lines = [
        BOM + b'{"text": "First.", "voice": "Ada"}',
        b"",
        b"  ",
        b'{"text": "B.", "voice": "Ada"}',
    ]

    answer = api.post(URL, end.join(lines), content_type=media_type)

    assert answer.status_code == 202
    assert [item["text_start"] for item in items_of(api, answer.json())] == ["First.", "B."]


def test_file_may_be_uploaded_with_options_as_fields(api: APIClient, ada: Voice) -> None:
    file = SimpleUploadedFile("texts.jsonl", b'{"custom_id": "a", "text": "Hello."}\n')
    fields = {
        "file": file,
        "defaults": json.dumps({"voice": "Ada", "format": "opus"}),
        "priority": "interactive",
        "retention": "3600",
    }

    answer = api.post(URL, fields, format="multipart")

    assert answer.status_code == 202, answer.content
    assert (answer.json()["priority"], answer.json()["retention"]) == ("interactive", 3600)
    assert items_of(api, answer.json())[0]["format"] == "opus"


BAD_LINES = [
    (b'{"text": "\xff"}', "not_utf8"),
    (b'{"text": "a"', "not_json"),
    (b'{"text": NaN}', "not_json"),
    (b"[" * 100_000, "not_json"),
    (b'{"seed": ' + b"9" * 5000 + b"}", "not_json"),
    (b'"a text"', "not_an_object"),
    (b"null", "not_an_object"),
    (b'{"text": "a\\u0000b"}', "text_not_text"),
    (b'{"text": "a \\ud800 b"}', "text_not_text"),
    (b'{"text": ""}', "text_empty"),
    (b'{"text": 7}', "invalid"),
    (b'{"custom_id": "x"}', "required"),
    (b'{"text": "a", "custom_id": "first"}', "custom_id_duplicate"),
    (b'{"text": "a", "custom_id": 7}', "invalid"),
    (b'{"text": "a", "custom_id": ""}', "invalid"),
    (b'{"text": "a", "custom_id": "a\\u0000"}', "null_characters_not_allowed"),
    (b'{"text": "a", "custom_id": "\\ud800"}', "surrogate_characters_not_allowed"),
    (b'{"text": "a", "custom_id": "a\\nb"}', "invalid"),
    (b'{"text": "a", "unknown": 1}', "unknown_field"),
    (b'{"text": "a", "\\u0000\\ud800": 1}', "unknown_field"),
    (b'{"text": "a", "priority": "bulk"}', "unknown_field"),
    (b'{"text": "a", "webhook": "https://example.org"}', "unknown_field"),
    (b'{"text": "a", "reference": {"audio": "x", "text": "x"}}', "unknown_field"),
    (b'{"text": "a", "voice": "Nobody"}', "voice_not_found"),
    (b'{"text": "a", "format": "exe"}', "invalid_choice"),
    (b'{"text": "a", "seed": -1}', "out_of_range"),
    (b'{"text": "<|speaker:3|> a"}', "speaker_unknown"),
]


@pytest.mark.parametrize(("line", "code"), BAD_LINES)
def test_bad_line_is_named_and_nothing_is_queued(post_lines: Post, line: bytes, code: str) -> None:
    answer = post_lines([{"custom_id": "first", "text": "Good."}, line, {"text": "Good too."}])

    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (400, "batch_items_invalid"), problem
    assert [(one["line"], one["index"], one["code"]) for one in problem["errors"]] == [(2, 1, code)]
    assert "line 2" in problem["detail"]
    assert "1 of 3 items" in problem["detail"]
    assert not Batch.objects.exists() and not RenderJob.objects.exists()


@pytest.mark.parametrize(("line", "code"), BAD_LINES)
def test_bad_line_is_a_failed_item_where_it_is_skipped(
    post_lines: Post, api: APIClient, line: bytes, code: str
) -> None:
    lines = [{"custom_id": "first", "text": "Good."}, line, {"text": "Good too."}]

    answer = post_lines(lines, on_error="skip")

    assert answer.status_code == 202, answer.content
    found = items_of(api, answer.json())
    assert [item["status"] for item in found] == ["queued", "failed", "queued"]
    assert found[1]["error_code"] == code
    assert "ine 2" in found[1]["error_message"]
    assert len({item["custom_id"] for item in found}) == 3


def test_blank_lines_count_as_lines_but_not_as_items(post_lines: Post) -> None:
    answer = post_lines([b"", {"text": "Good."}, b"", {"custom_id": "b", "text": ""}])

    [error] = answer.json()["errors"]
    assert (error["line"], error["index"], error["custom_id"]) == (4, 1, "b")


def test_a_hundred_errors_are_listed_and_all_bad_items_are_counted(post: Post) -> None:
    answer = post([{"text": ""}] * 150 + ["Good."])

    problem = answer.json()
    assert answer.status_code == 400
    assert len(problem["errors"]) == 100
    assert "150 of 151 items" in problem["detail"]
    assert problem["errors"][99]["attr"] == "items.99.text"


def test_item_too_many_is_refused_in_every_form(
    post: Post, post_lines: Post, settings: Settings
) -> None:
    settings.MAX_BATCH_ITEMS = 3
    texts = [{"text": "Hello."}] * 4

    for answer in (post(texts), post_lines(texts)):
        assert (answer.status_code, answer.json()["code"]) == (413, "batch_too_many_items")
        assert "3 are allowed" in answer.json()["detail"]
    assert not Batch.objects.exists() and not RenderJob.objects.exists()
    assert post(texts[:3]).status_code == 202


def test_texts_too_long_together_are_refused(post: Post, settings: Settings) -> None:
    settings.MAX_BATCH_CHARS = 20

    answer = post(["Ten chars.", "Ten chars.", "No."])

    assert (answer.status_code, answer.json()["code"]) == (413, "batch_too_long")
    assert "item 2" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "attr"),
    [
        ({}, "items"),
        ({"items": []}, "items"),
        ({"items": {}}, "items"),
        ({"items": "a"}, "items"),
        ({"items": None}, "items"),
        ({"items": [{"text": "a"}], "on_error": "stop"}, "on_error"),
        ({"items": [{"text": "a"}], "on_error": 1}, "on_error"),
        ({"items": [{"text": "a"}], "defaults": []}, "defaults"),
        ({"items": [{"text": "a"}], "defaults": {"text": "a"}}, "defaults.text"),
        ({"items": [{"text": "a"}], "defaults": {"format": "exe"}}, "defaults.format"),
        ({"items": [{"text": "a"}], "defaults": {"seed": "a"}}, "defaults.seed"),
        ({"items": [{"text": "a"}], "priority": 1}, "priority"),
        ({"items": [{"text": "a"}], "webhook": "ftp://example.org"}, "webhook"),
        ({"items": [{"text": "a"}], "webhook": "http://127.0.0.1/x"}, "webhook"),
        ({"items": [{"text": "a"}], "deadline": "2020-01-01T00:00:00Z"}, "deadline"),
        ({"items": [{"text": "a"}], "retention": -1}, "retention"),
        ({"items": [{"text": "a"}], "unknown": 1}, "unknown"),
    ],
)
def test_field_of_the_batch_that_is_wrong_is_named(
    api: APIClient, ada: Voice, body: dict[str, Any], attr: str
) -> None:
    answer = api.post(URL, body, format="json")

    assert answer.status_code == 400, answer.content
    assert attr in [error["attr"] for error in answer.json()["errors"]]
    assert not Batch.objects.exists() and not RenderJob.objects.exists()


def test_same_key_and_body_make_one_batch_and_another_body_is_refused(
    post: Post, post_lines: Post, api: APIClient
) -> None:
    headers = {"Idempotency-Key": "k"}

    first, again = post(["One."], headers=headers), post(["One."], headers=headers)
    other = post(["Two."], headers=headers)
    job = api.post("/api/v1/jobs", {"text": "One.", "voice": "Ada"}, headers=headers)

    assert first.json()["id"] == again.json()["id"]
    assert (first.status_code, again.status_code) == (202, 200)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert job.status_code == 202  # keys of jobs and of batches are apart
    assert (Batch.objects.count(), RenderJob.objects.count()) == (1, 2)


def test_key_limits_count_all_items_at_once(operator: User, ada: Voice) -> None:
    row, key = create_key(operator, "limited", limits={"max_unfinished_jobs": 2})
    client = APIClient(HTTP_AUTHORIZATION=f"Bearer {key}")
    items = [{"text": "Hello.", "voice": "Ada"}]

    over = client.post(URL, {"items": items * 3}, format="json")
    fits = client.post(URL, {"items": items * 2}, format="json")
    full = client.post("/api/v1/jobs", items[0], format="json")

    assert (over.status_code, over.json()["code"]) == (429, "key_limit_jobs")
    assert "Retry-After" not in over
    assert "fewer items" in over.json()["detail"]
    assert fits.status_code == 202
    assert full.status_code == 429
    assert RenderJob.objects.filter(api_key=row).count() == 2
    assert Batch.objects.get().api_key == row


def test_plain_list_of_jobs_has_neither_batches_nor_items(post: Post, api: APIClient) -> None:
    batch = post(["One.", "Two."]).json()
    job = api.post("/api/v1/jobs", {"text": "Alone.", "voice": "Ada"}).json()
    [first, _] = items_of(api, batch)

    listed = api.get("/api/v1/jobs").json()["results"]
    of_batch = api.get(f"/api/v1/jobs?batch={batch['id']}").json()["results"]
    by_ids = api.get(f"/api/v1/jobs?ids={first['id']},{batch['id']}").json()["results"]

    assert [one["id"] for one in listed] == [job["id"]]
    assert len(of_batch) == 2
    assert [one["id"] for one in by_ids] == [first["id"]]
    assert api.get(f"/api/v1/jobs/{batch['id']}").status_code == 404
    assert api.get(f"{URL}/{job['id']}").status_code == 404
    assert api.get("/api/v1/jobs?batch=x").status_code == 400


def test_batch_tells_counts_and_ends_partial_with_a_failed_item(post: Post, api: APIClient) -> None:
    batch = post(["One.", "Two.", "Three."]).json()
    path = f"{URL}/{batch['id']}"
    tag = api.get(path)["ETag"]
    assert api.get(path, headers={"If-None-Match": tag}).status_code == 304
    assert api.get(f"{path}/results").json()["code"] == "batch_not_finished"

    finish_items(bad="Two.")
    running = api.get(path).json()
    make_files()
    zipping = api.get(path).json()
    make_files()
    ended = api.get(path).json()

    assert (running["status"], running["counts"]["failed"]) == ("running", 1)
    assert (zipping["status"], zipping["counts"]["succeeded"]) == ("running", 2)
    assert zipping["progress"] == 0.99
    assert (ended["status"], ended["progress"]) == ("partial", 1.0)
    assert ended["error_code"] == "items_failed"
    assert "item-00002" in ended["error_message"]
    assert ended["results_url"] == f"{path}/results"
    got = api.get(ended["results_url"], headers={"Range": "bytes=2-4"})
    assert (got.status_code, got.getvalue()) == (206, b"234")
    assert got["Content-Type"] == "application/zip"


def test_items_can_be_filtered_and_paged(post: Post, api: APIClient) -> None:
    batch = post(["One.", {"custom_id": "b", "text": "Two."}, "Three."]).json()
    path = f"{URL}/{batch['id']}/items"
    finish_items(bad="Three.")

    page = api.get(f"{path}?limit=2").json()
    rest = api.get(page["next"]).json()
    failed = api.get(f"{path}?status=failed").json()["results"]
    named = api.get(f"{path}?custom_id=b").json()["results"]

    assert [one["item_index"] for one in page["results"] + rest["results"]] == [0, 1, 2]
    assert [one["item_index"] for one in failed] == [2]
    assert [one["item_index"] for one in named] == [1]
    assert api.get(f"{path}?status=x").status_code == 400
    assert api.get(f"{path}?custom_id=%00").status_code == 400


def test_items_with_like_options_have_them_and_others_have_their_own(
    post: Post, api: APIClient
) -> None:
    items: list[Any] = [
        {"text": "One.", "speed": 1.5},
        {"text": "Two."},
        {"text": "Three.", "speed": 1.5, "custom_id": "three"},
        {"text": "Four.", "speed": 1},
        {"text": "Five.", "speed": True},
        {"text": 6},
        {"speed": 1.5},
    ]

    batch = post(items, on_error="skip").json()

    rows = RenderJob.objects.filter(batch=batch["id"]).order_by("item_index")
    assert [(row.text, row.speed) for row in rows[:4]] == [
        ("One.", 1.5),
        ("Two.", 1.0),
        ("Three.", 1.5),
        ("Four.", 1.0),
    ]
    assert [row.custom_id for row in rows[1:3]] == ["item-00002", "three"]
    assert [row.status for row in rows] == ["queued"] * 4 + ["failed"] * 3
    assert [row.error_code for row in rows[4:]] == ["invalid", "invalid", "required"]


def test_items_are_rendered_in_their_order(post: Post) -> None:
    texts = [f"Sentence number {number}." for number in range(30)]

    post(texts)

    claims = claim_segments(worker="gpu", limit=100, codec_fingerprint=CODEC_FINGERPRINT)
    assert [Segment.objects.get(pk=claim.pk).text for claim in claims] == texts


def test_large_batch_is_queued_and_cancelled_by_as_many_statements_as_a_small_one(
    post: Post, api: APIClient, sent_tasks: Callable[[str], list[str]]
) -> None:
    counts = []
    for size in (1, 3, 150):  # the first one finds nothing in caches
        with CaptureQueriesContext(connection) as queued:
            batch = post([f"Text {number}." for number in range(size)]).json()
        with CaptureQueriesContext(connection) as cancelled:
            ended = api.post(f"{URL}/{batch['id']}/cancel").json()
        counts.append((len(queued), len(cancelled)))
        assert ended["counts"]["cancelled"] == size

    assert counts[1] == counts[2]
    assert len(sent_tasks("render_segments")) == 1 + 1 + 8  # 64 segments, eight in a message


def test_cancelled_batch_ends_and_can_be_retried(post: Post, api: APIClient) -> None:
    batch = post(["One.", "Two."]).json()
    path = f"{URL}/{batch['id']}"

    cancelled = api.post(f"{path}/cancel").json()
    again = api.post(f"{path}/retry")

    assert (cancelled["status"], cancelled["counts"]["cancelled"]) == ("cancelled", 2)
    assert (again.status_code, again.json()["status"]) == (202, "queued")
    assert again.json()["counts"]["queued"] == 2
    assert api.post(f"{path}/retry").json()["code"] == "batch_not_ended"
    finish_items()
    make_files()
    make_files()
    assert api.get(path).json()["status"] == "succeeded"
    assert api.post(f"{path}/retry").json()["code"] == "nothing_to_retry"


def test_retry_keeps_what_is_whole_and_makes_a_new_zip(post: Post, api: APIClient) -> None:
    batch = post(["One.", "Two."]).json()
    path = f"{URL}/{batch['id']}"
    finish_items(bad="Two.")
    make_files()
    make_files()
    old = Export.objects.get(format="zip").pk

    answer = api.post(f"{path}/retry")

    assert answer.json()["counts"] | {"queued": 1, "succeeded": 1} == answer.json()["counts"]
    assert not Export.objects.filter(format="zip").exists()
    finish_items()
    make_files()
    make_files()
    assert api.get(path).json()["status"] == "succeeded"
    assert Export.objects.get(format="zip").pk != old


def test_deleted_batch_leaves_nothing(post: Post, api: APIClient, stored_objects: Any) -> None:
    batch = post(["One.", "Two."]).json()
    finish_items()
    make_files()
    make_files()
    assert stored_objects()

    answer = api.delete(f"{URL}/{batch['id']}")

    assert answer.status_code == 204
    assert not Batch.objects.exists() and not RenderJob.objects.exists()
    assert not Segment.objects.exists()
    assert stored_objects() == []


def test_deleted_item_leaves_its_batch_and_the_zip_is_made_without_it(
    post: Post, api: APIClient
) -> None:
    batch = post(["One.", "Two."]).json()
    finish_items()
    make_files()
    make_files()
    [first, _] = items_of(api, batch)

    api.delete(f"/api/v1/jobs/{first['id']}")

    shown = api.get(f"{URL}/{batch['id']}").json()
    assert shown["items_total"] == 1
    assert shown["status"] in ("queued", "running")
    make_files()
    assert api.get(f"{URL}/{batch['id']}").json()["status"] == "succeeded"


def test_retried_item_opens_its_batch_again(post: Post, api: APIClient) -> None:
    batch = post(["One.", "Two."]).json()
    finish_items(bad="Two.")
    make_files()
    make_files()
    second = items_of(api, batch)[1]

    api.post(f"/api/v1/jobs/{second['id']}/retry")

    assert api.get(f"{URL}/{batch['id']}").json()["status"] == "queued"
    finish_items()
    make_files()
    make_files()
    assert api.get(f"{URL}/{batch['id']}").json()["status"] == "succeeded"


def test_item_that_never_had_a_text_to_speak_cannot_be_retried(post: Post, api: APIClient) -> None:
    batch = post(["One.", {"text": ""}], on_error="skip").json()
    bad = items_of(api, batch)[1]

    answer = api.post(f"/api/v1/jobs/{bad['id']}/retry")

    assert (answer.status_code, answer.json()["code"]) == (409, "nothing_to_retry")


def test_batch_of_bad_items_alone_has_failed_at_once(post: Post) -> None:
    answer = post([{"text": ""}], on_error="skip")

    assert (answer.status_code, answer.json()["status"]) == (200, "failed")
    assert "line" not in answer.json()["error_message"]
    assert "item-00001" in answer.json()["error_message"]


def test_voice_that_is_not_ready_is_told_for_each_item(post: Post) -> None:
    make_voice("Bob", ready=False)

    answer = post(["One."], defaults={"voice": "Bob"})

    assert answer.status_code == 400
    assert [one["code"] for one in answer.json()["errors"]] == ["voice_not_ready"]
