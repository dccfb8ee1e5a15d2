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

from synth.accounts.access import create_key
from synth.models import Batch, Export, RenderJob, Segment
from synth.transitions.claims import claim_segments
from synth.transitions.files import claimable_exports
from synth.transitions.segments import fail_segment
from tests.factories import (
    CODEC_FINGERPRINT,
    finish_export,
    finish_segment,
    hold_row,
    make_take,
    make_voice,
)
from tests.synth.batches.conftest import Post
from voices.models import Voice

pytestmark = pytest.mark.django_db(transaction=True)
URL = "/api/v1/batches"
NO_ITEMS: list[Any] = [[], {}, "a", None]


def items_of(api: APIClient, batch: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get(f"{URL}/{batch['id']}/items").json()["results"]
    return found


def finish_items(bad: str = "") -> None:
    """Render all that is queued; segments of a bad text fail."""
    for claim in claim_segments(worker="gpu", limit=100, codec_fingerprint=CODEC_FINGERPRINT):
        text = Segment.objects.get(pk=claim.pk).text
        if text == bad:
            fail_segment(claim, code="bad", message="It is bad.")
        else:
            finish_segment(claim, make_take())


def make_files() -> None:
    """Finish every export that waits, with an object of its own."""
    for export in claimable_exports():
        claim = hold_row(Export, export.pk)
        key = default_storage.save(f"exports/{export.pk}", ContentFile(b"0123456789"))
        finish_export(claim, key=key, size_bytes=10, sha256="d" * 64, duration_seconds=1.0)


def end_batch(bad: str = "") -> None:
    """Render all that is queued, make the items' files, and the zip of them."""
    finish_items(bad)
    make_files()
    make_files()


def test_items_become_jobs_with_their_names_and_options(post: Post, api: APIClient) -> None:
    items = [{"custom_id": "one", "text": "First.", "format": "mp3", "seed": 7}, "Second."]
    answer = post(items, defaults={"voice": "Ada", "format": "flac"})

    batch = answer.json()
    assert (answer.status_code, answer["Location"]) == (202, f"{URL}/{batch['id']}")
    first, second = items_of(api, batch)
    assert (batch["status"], batch["items_total"], batch["counts"]["queued"]) == ("queued", 2, 2)
    assert batch["priority"] == "bulk"
    assert (first["custom_id"], first["format"], first["seed"]) == ("one", "mp3", 7)
    assert (second["custom_id"], second["format"]) == ("item-00002", "flac")
    assert (second["item_index"], second["batch"]) == (1, batch["id"])
    assert api.get(f"/api/v1/jobs/{first['id']}").json()["text"] == "First."
    assert Segment.objects.count() == 2


def test_lines_may_have_a_byte_order_mark_blanks_and_carriage_returns(
    api: APIClient, ada: Voice
) -> None:
    first, second = b'{"text": "First.", "voice": "Ada"}', b'{"text": "B.", "voice": "Ada"}'
    for end, kind in ((b"\n", "x-ndjson"), (b"\r\n", "x-ndjson"), (b"\r\n", "jsonl")):
        body = end.join([b"\xef\xbb\xbf" + first, b"", b"  ", second])
        answer = api.post(URL, body, content_type=f"application/{kind}")
        assert answer.status_code == 202
        assert [item["text_start"] for item in items_of(api, answer.json())] == ["First.", "B."]


def test_file_may_be_uploaded_with_options_as_fields(api: APIClient, ada: Voice) -> None:
    fields = {
        "file": SimpleUploadedFile("texts.jsonl", b'{"custom_id": "a", "text": "Hello."}\n'),
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


def test_bad_lines_are_named_or_skipped_as_failed_items(post_lines: Post, api: APIClient) -> None:
    lines = [{"custom_id": "first", "text": "Good."}, *(line for line, _ in BAD_LINES)]
    codes = [code for _, code in BAD_LINES]
    places = range(1, len(lines))
    answer = post_lines(lines)

    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (400, "batch_items_invalid"), problem
    assert [one["code"] for one in problem["errors"]] == codes
    assert [(one["line"], one["index"]) for one in problem["errors"]] == [
        (n + 1, n) for n in places
    ]
    assert "line 2" in problem["detail"]
    assert f"{len(codes)} of {len(lines)} items" in problem["detail"]
    assert not Batch.objects.exists() and not RenderJob.objects.exists()
    answer = post_lines([*lines, {"text": "Good too."}], on_error="skip")
    assert answer.status_code == 202, answer.content
    items = api.get(f"{URL}/{answer.json()['id']}/items?limit=100").json()["results"]
    assert [item["status"] for item in items] == ["queued", *["failed"] * len(codes), "queued"]
    assert [item["error_code"] for item in items[1:-1]] == codes
    assert all(f"ine {n + 1}" in items[n]["error_message"] for n in places)
    assert len({item["custom_id"] for item in items}) == len(lines) + 1


def test_a_hundred_errors_are_listed_and_all_bad_items_are_counted(
    post: Post, post_lines: Post
) -> None:
    answer = post([{"text": ""}] * 150 + ["Good."])
    problem = answer.json()
    assert (answer.status_code, len(problem["errors"])) == (400, 100)
    assert "150 of 151 items" in problem["detail"]
    assert problem["errors"][99]["attr"] == "items.99.text"
    answer = post_lines([b"", {"text": "Good."}, b"", {"custom_id": "b", "text": ""}])
    [error] = answer.json()["errors"]  # blank lines count as lines but not as items
    assert (error["line"], error["index"], error["custom_id"]) == (4, 1, "b")


def test_items_too_many_and_texts_too_long_together_are_refused(
    post: Post, post_lines: Post, settings: Settings
) -> None:
    settings.MAX_BATCH_ITEMS, settings.MAX_BATCH_CHARS = 3, 20
    texts = [{"text": "Hello."}] * 4

    for answer in (post(texts), post_lines(texts)):
        assert (answer.status_code, answer.json()["code"]) == (413, "batch_too_many_items")
        assert "3 are allowed" in answer.json()["detail"]
    answer = post(["Ten chars.", "Ten chars.", "No."])
    assert (answer.status_code, answer.json()["code"]) == (413, "batch_too_long")
    assert "item 2" in answer.json()["detail"]
    assert not Batch.objects.exists() and not RenderJob.objects.exists()
    assert post(texts[:3]).status_code == 202


def test_field_of_the_batch_that_is_wrong_is_named(api: APIClient, ada: Voice) -> None:
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("on_error", {"on_error": "stop"}),
        ("on_error", {"on_error": 1}),
        ("defaults", {"defaults": []}),
        ("defaults.text", {"defaults": {"text": "a"}}),
        ("defaults.format", {"defaults": {"format": "exe"}}),
        ("defaults.seed", {"defaults": {"seed": "a"}}),
        ("priority", {"priority": 1}),
        ("webhook", {"webhook": "ftp://example.org"}),
        ("webhook", {"webhook": "http://127.0.0.1/x"}),
        ("deadline", {"deadline": "2020-01-01T00:00:00Z"}),
        ("retention", {"retention": -1}),
        ("unknown", {"unknown": 1}),
        *(("items", {"items": no_items}) for no_items in NO_ITEMS),
    ]
    bodies = [(attr, {"items": [{"text": "a"}], **fields}) for attr, fields in wrong]
    for attr, body in [*bodies, ("items", {})]:
        answer = api.post(URL, body, format="json")
        assert answer.status_code == 400, body
        assert attr in [error["attr"] for error in answer.json()["errors"]], body
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

    finish_items("Two.")
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
    finish_items("Three.")

    page = api.get(f"{path}?limit=2").json()
    rest = api.get(page["next"]).json()
    failed = api.get(f"{path}?status=failed").json()["results"]
    named = api.get(f"{path}?custom_id=b").json()["results"]

    assert [one["item_index"] for one in page["results"] + rest["results"]] == [0, 1, 2]
    assert [one["item_index"] for one in failed] == [2]
    assert [one["item_index"] for one in named] == [1]
    assert api.get(f"{path}?status=x").status_code == 400
    assert api.get(f"{path}?custom_id=%00").status_code == 400


def test_items_with_like_options_have_them_and_others_have_their_own(post: Post) -> None:
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
    speeds = {"One.": 1.5, "Two.": 1.0, "Three.": 1.5, "Four.": 1.0}
    assert {row.text: row.speed for row in rows[:4]} == speeds
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
    end_batch()
    assert api.get(path).json()["status"] == "succeeded"
    assert api.post(f"{path}/retry").json()["code"] == "nothing_to_retry"


def test_retry_keeps_what_is_whole_and_makes_a_new_zip(post: Post, api: APIClient) -> None:
    batch = post(["One.", "Two."]).json()
    path = f"{URL}/{batch['id']}"
    end_batch("Two.")
    old = Export.objects.get(format="zip").pk
    answer = api.post(f"{path}/retry")
    assert answer.json()["counts"] | {"queued": 1, "succeeded": 1} == answer.json()["counts"]
    assert not Export.objects.filter(format="zip").exists()
    end_batch()
    assert api.get(path).json()["status"] == "succeeded"
    assert Export.objects.get(format="zip").pk != old


def test_deleted_batch_leaves_nothing(post: Post, api: APIClient, stored_objects: Any) -> None:
    batch = post(["One.", "Two."]).json()
    end_batch()
    assert stored_objects()
    answer = api.delete(f"{URL}/{batch['id']}")
    assert answer.status_code == 204
    assert not Batch.objects.exists() and not RenderJob.objects.exists()
    assert not Segment.objects.exists()
    assert stored_objects() == []


def test_zip_is_made_without_a_deleted_item_and_again_after_a_retried_one(
    post: Post, api: APIClient
) -> None:
    batch = post(["One.", "Two."]).json()
    path = f"{URL}/{batch['id']}"
    end_batch("Two.")
    first, second = items_of(api, batch)
    api.post(f"/api/v1/jobs/{second['id']}/retry")
    assert api.get(path).json()["status"] == "queued"
    end_batch()
    assert api.get(path).json()["status"] == "succeeded"
    api.delete(f"/api/v1/jobs/{first['id']}")
    shown = api.get(path).json()
    assert shown["items_total"] == 1
    assert shown["status"] in ("queued", "running")
    make_files()
    assert api.get(path).json()["status"] == "succeeded"


def test_batch_of_bad_items_alone_has_failed_at_once_and_they_cannot_be_retried(
    post: Post, api: APIClient
) -> None:
    answer = post([{"text": ""}], on_error="skip")
    assert (answer.status_code, answer.json()["status"]) == (200, "failed")
    assert "line" not in answer.json()["error_message"]
    assert "item-00001" in answer.json()["error_message"]
    [bad] = items_of(api, answer.json())
    again = api.post(f"/api/v1/jobs/{bad['id']}/retry")
    assert (again.status_code, again.json()["code"]) == (409, "nothing_to_retry")


def test_voice_that_is_not_ready_is_told_for_each_item(post: Post) -> None:
    make_voice("Bob", ready=False)
    answer = post(["One."], defaults={"voice": "Bob"})
    assert answer.status_code == 400
    assert [one["code"] for one in answer.json()["errors"]] == ["voice_not_ready"]
