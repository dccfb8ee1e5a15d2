"""The review list over REST: what is in it, in which order, for whom; and approvals."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from synth.models import RenderJob, Segment
from synth.transitions.takes import flagged
from tests.factories import make_book, make_take, make_user
from tests.synth.review.rows import keep, make_spoken_job

pytestmark = pytest.mark.django_db(transaction=True)
LIST = "/api/v1/review"


def listed(api: APIClient, **query: str) -> list[dict[str, Any]]:
    answer = api.get(LIST, query)
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()["results"]
    return found


def approve(api: APIClient, segment: Segment, take: object = None) -> Any:
    body = {"take": str(take or segment.take_id)}
    return api.post(f"{LIST}/{segment.pk}/approve", body)


def test_failed_comes_first_then_the_worst_score_and_nothing_that_is_good(
    api: APIClient, operator: User
) -> None:
    first = make_spoken_job(operator, 0.5, 1.0, None)
    second = make_spoken_job(operator, 0.2, 0.8)
    found = listed(api)
    rows = [list(job.segments.order_by("index")) for job in (first, second)]
    worst_first = [rows[0][2], rows[1][0], rows[0][0], rows[1][1]]
    assert [one["id"] for one in found] == [segment.pk for segment in worst_first]
    assert [one["score"] for one in found] == [0.0, 0.2, 0.5, 0.8]
    assert [one["reason"] for one in found] == ["failed", "flagged", "flagged", "flagged"]


def test_item_has_all_that_a_person_needs(api: APIClient, operator: User) -> None:
    job = make_spoken_job(operator, 1.0, 1.0, 0.3, 1.0)
    book = make_book(operator, job=job, title="Cattle")
    bad = job.segments.get(index=2)
    keep(bad, score=0.2, flags=["noise", "level"])
    around = {one.index: one for one in job.segments.all()}

    item = listed(api)[0]

    assert (item["job"], item["book"], item["title"]) == (str(job.pk), str(book.pk), "Cattle")
    assert (item["chapter"], item["index"]) == ({"index": 0, "title": ""}, 2)
    assert (item["text"], item["spoken_text"]) == (bad.text, bad.spoken_text)
    assert [one["name"] for one in item["flags"]] == ["noise", "level"]
    assert all(one["sentence"].endswith(".") for one in item["flags"])
    assert [one["id"] for one in item["before"]] == [around[0].pk, around[1].pk]
    assert [one["id"] for one in item["after"]] == [around[3].pk]
    assert [one["is_kept"] for one in item["takes"]] == [False, True]
    assert [one["score"] for one in item["takes"]] == [0.3, 0.2]
    assert item["takes"][0]["measures"] == [{"name": "too_short", "value": 0.2, "limit": 1.5}]
    for take in item["takes"]:
        assert take["audio_url"] == (
            f"/api/v1/jobs/{job.pk}/segments/{bad.pk}/audio?take={take['take']}"
        )
    assert item["after"][0]["audio_url"].endswith(f"/segments/{around[3].pk}/audio")


def test_flag_tells_its_number_in_a_sentence(api: APIClient, operator: User) -> None:
    make_spoken_job(operator, 0.3)
    flag = listed(api)[0]["flags"][0]
    assert flag["name"] == "too_short"
    assert "0.2 s" in flag["sentence"] and "1.5 s" in flag["sentence"]


def test_take_that_stands_out_beside_the_others_is_listed_though_it_has_no_flag_alone(
    api: APIClient, operator: User
) -> None:
    segment = make_spoken_job(operator, 0.5).segments.get()
    take = keep(segment, score=1.0)
    assert listed(api) == []
    segment.candidates = [
        flagged(one, {"level": 0.4}) if one["take"] == str(take.pk) else one
        for one in segment.candidates
    ]
    segment.save()

    item = listed(api)[0]
    assert (item["score"], [one["name"] for one in item["flags"]]) == (0.4, ["level"])


def test_take_nobody_can_speak_so_fast_is_listed_though_nothing_was_screened(
    api: APIClient, operator: User
) -> None:
    job = make_spoken_job(
        operator, 1.0, 1.0, kind="book", status="partial", error_code="book_segments_short"
    )
    short = job.segments.get(index=1)
    short.spoken_text = "A long sentence of many words that takes some seconds to speak. " * 3
    short.save()
    found = listed(api)
    assert [(one["id"], one["reason"], one["approved"]) for one in found] == [
        (short.pk, "short", False)
    ]
    assert [one["name"] for one in found[0]["flags"]] == ["too_short"]
    assert len(found[0]["takes"]) == 1 and found[0]["takes"][0]["is_kept"]
    assert approve(api, short).status_code == 200
    assert listed(api) == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"status": "failed"}, [2]),
        ({"status": "done"}, [0, 1]),
        ({"status": "failed,done"}, [2, 0, 1]),
        ({"flag": "noise"}, [1]),
        ({"flag": "noise,too_short"}, [0, 1]),
        ({"flag": "stuck"}, []),
        ({"approved": "false"}, [2, 0, 1]),
        ({"approved": "true"}, [3]),
        ({"limit": "2"}, [2, 0]),
    ],
    ids=lambda value: urlencode(value) if isinstance(value, dict) else "",
)
def test_filters(
    api: APIClient, operator: User, query: dict[str, str], expected: list[int]
) -> None:
    job = make_spoken_job(operator, 0.2, 1.0, None, 0.4)
    rows = {segment.index: segment for segment in job.segments.all()}
    keep(rows[1], score=0.6, flags=["noise"])
    assert approve(api, rows[3]).status_code == 200
    assert [one["index"] for one in listed(api, **query)] == expected


def test_list_of_one_book_holds_its_job_and_its_sample(api: APIClient, operator: User) -> None:
    job, sample = make_spoken_job(operator, 0.2), make_spoken_job(operator, 0.3)
    make_spoken_job(operator, 0.1)
    book = make_book(operator, job=job, sample_job=sample)

    by_book = listed(api, book=str(book.pk))
    by_job = listed(api, job=str(sample.pk))

    assert [one["job"] for one in by_book] == [str(job.pk), str(sample.pk)]
    assert {one["book"] for one in by_book} == {str(book.pk)}
    assert [one["job"] for one in by_job] == [str(sample.pk)]


def test_pages_hold_each_segment_once_however_many_are_equally_bad(
    api: APIClient, operator: User
) -> None:
    job = make_spoken_job(operator, None, None, None, 0.3, 0.3, 0.3, 0.3)
    seen: list[int] = []
    address: str | None = f"{LIST}?limit=2"
    while address:
        page = api.get(address).json()
        assert page["left"] == 7
        seen += [one["id"] for one in page["results"]]
        address = page["next"]
    assert seen == list(job.segments.order_by("index").values_list("pk", flat=True))


def test_page_is_gone_on_with_after_its_segments_were_approved(
    api: APIClient, operator: User
) -> None:
    job = make_spoken_job(operator, 0.1, 0.2, 0.3, 0.4)
    first = api.get(f"{LIST}?limit=2").json()
    for item in first["results"]:
        approve(api, job.segments.get(pk=item["id"]))
    second = api.get(first["next"]).json()
    assert [one["index"] for one in second["results"]] == [2, 3]
    assert second["left"] == 2


def test_number_of_queries_does_not_grow_with_the_page(api: APIClient, operator: User) -> None:
    make_book(operator, job=make_spoken_job(operator, 0.1, 0.2))

    def count() -> int:
        with CaptureQueriesContext(connection) as found:
            listed(api)
        return len(found)

    listed(api)  # the first one notes that the key is used
    few = count()
    for _ in range(4):
        make_book(operator, job=make_spoken_job(operator, 0.1, 0.2, None))
    assert count() == few


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("book=7", "invalid"),
        ("job=nothing", "invalid"),
        ("flag=loud", "invalid"),
        ("flag=", "blank"),
        ("status=queued", "invalid"),
        ("approved=yes", "invalid"),
        ("limit=101", "invalid"),
        ("limit=0", "invalid"),
        ("colour=red", "unknown_field"),
        ("flag=noise&flag=level", "repeated"),
        ("cursor=zzz", "cursor_invalid"),
        ("cursor=" + base64.b64encode(b"p=2026-01-01").decode(), "cursor_invalid"),
        ("cursor=" + base64.b64encode(b"p=-1").decode(), "cursor_invalid"),
        ("cursor=" + base64.b64encode(b"p=99999999999999999999").decode(), "cursor_invalid"),
        ("book=%00", "null_characters_not_allowed"),
    ],
)
def test_filter_that_cannot_be_read_is_refused(api: APIClient, query: str, code: str) -> None:
    answer = api.get(f"{LIST}?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, code)


def test_segments_that_nobody_can_change_any_more_are_left_out(
    api: APIClient, operator: User
) -> None:
    make_spoken_job(operator, 0.1, None, status="cancelled", cancel_requested=True)
    make_spoken_job(operator, 0.1, status="running", cancel_requested=True)
    assert listed(api) == []


def test_other_users_segments_are_neither_listed_nor_shown_nor_approved(
    api: APIClient, client_of: Callable[[User], APIClient], operator: User
) -> None:
    segment = make_spoken_job(make_user("other"), 0.1).segments.get()
    shown = api.get(f"{LIST}/{segment.pk}")
    refused = approve(api, segment)
    many = api.post(
        f"{LIST}/approve", {"takes": [{"segment": segment.pk, "take": str(segment.take_id)}]}
    )

    assert listed(api) == []
    assert (shown.status_code, shown.json()["code"]) == (404, "segment_not_found")
    assert (refused.status_code, refused.json()["code"]) == (404, "segment_not_found")
    assert many.json()["approved"] == []
    assert [one["code"] for one in many.json()["refused"]] == ["segment_not_found"]
    segment.refresh_from_db()
    assert not segment.is_hand_picked
    superuser = client_of(make_user("root", is_superuser=True))
    assert [one["id"] for one in listed(superuser)] == [segment.pk]


def test_approved_take_is_kept_by_hand_and_leaves_the_list(api: APIClient, operator: User) -> None:
    job = make_spoken_job(operator, 0.3, 1.0)
    segment, take = job.segments.get(index=0), job.segments.get(index=0).take_id
    answer, again = approve(api, segment), approve(api, segment)
    assert (answer.status_code, again.status_code) == (200, 200)
    assert (answer.json()["approved"], answer.json()["reason"]) == (True, None)
    assert answer.json() == again.json()
    segment.refresh_from_db()
    assert (segment.is_hand_picked, segment.take_id, segment.status) == (True, take, "done")
    assert len(segment.candidates) == 1
    assert listed(api) == []
    job.refresh_from_db()
    assert (job.status, job.segments_done) == ("succeeded", 2)


def test_take_that_is_no_longer_kept_is_not_approved(api: APIClient, operator: User) -> None:
    segment = make_spoken_job(operator, 0.3).segments.get()
    old = segment.take_id
    keep(segment, score=0.4)
    answer = approve(api, segment, old)
    assert (answer.status_code, answer.json()["code"]) == (409, "take_changed")
    segment.refresh_from_db()
    assert not segment.is_hand_picked
    assert len(listed(api)) == 1


@pytest.mark.parametrize(
    ("segment", "job", "code"),
    [
        ({"status": "failed", "take": None}, {}, "segment_without_audio"),
        ({"status": "queued"}, {}, "segment_unfinished"),
        ({"status": "claimed"}, {}, "segment_unfinished"),
        ({}, {"cancel_requested": True}, "job_cancelled"),
        ({}, {"status": "cancelled"}, "job_cancelled"),
    ],
    ids=["failed", "queued", "claimed", "cancelling", "cancelled"],
)
def test_what_stands_in_the_way_of_an_approval_is_told(
    api: APIClient, operator: User, segment: dict[str, Any], job: dict[str, Any], code: str
) -> None:
    row = make_spoken_job(operator, 0.3).segments.get()
    RenderJob.objects.update(**job)
    Segment.objects.update(**segment)
    answer = approve(api, row, row.take_id)
    assert (answer.status_code, answer.json()["code"]) == (409, code)
    assert ("Retry-After" in answer) == (code == "segment_unfinished")


def test_take_that_a_person_asked_for_stays_listed_until_somebody_listened_to_it(
    api: APIClient, operator: User
) -> None:
    segment = make_spoken_job(operator, 0.3).segments.get()
    segment.is_hand_picked = True  # as rendering again leaves it
    keep(segment, score=0.2, flags=["noise"])

    assert len(listed(api)) == 1
    approve(api, segment)
    assert listed(api) == []


def test_choosing_a_take_approves_it(api: APIClient, operator: User) -> None:
    segment = make_spoken_job(operator, 0.3).segments.get()
    kept, other = segment.take_id, keep(segment, score=0.2)
    choose = f"/api/v1/jobs/{segment.job_id}/segments/{segment.pk}/choose"

    assert api.post(choose, {"take": str(kept)}).status_code == 200
    assert listed(api) == []
    assert [one["take"] for one in listed(api, approved="true")] == [str(kept)]

    assert api.post(choose, {"take": str(other.pk)}).status_code == 200
    assert [one["take"] for one in listed(api, approved="true")] == [str(other.pk)]


def test_many_are_approved_at_once_and_the_others_named(api: APIClient, operator: User) -> None:
    rows = list(make_spoken_job(operator, 0.1, 0.2, None).segments.order_by("index"))
    taken = [{"segment": one.pk, "take": str(one.take_id)} for one in rows[:2]]
    failed = {"segment": rows[2].pk, "take": str(make_take().pk)}
    gone = {"segment": 10**12, "take": str(uuid.uuid4())}
    answer = api.post(f"{LIST}/approve", {"takes": [*taken, failed, gone]}).json()
    assert answer["approved"] == [rows[0].pk, rows[1].pk]
    assert [(one["segment"], one["code"]) for one in answer["refused"]] == [
        (rows[2].pk, "segment_without_audio"),
        (10**12, "segment_not_found"),
    ]
    assert [one["id"] for one in listed(api)] == [rows[2].pk]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"takes": []},
        {"takes": "all"},
        {"takes": [{"segment": 1}]},
        {"takes": [{"segment": "1", "take": "5d7d0ed0-d6c6-46a7-ab6b-e912c87f5299"}]},
        {"takes": [{"segment": True, "take": "5d7d0ed0-d6c6-46a7-ab6b-e912c87f5299"}]},
        {"takes": [{"segment": 2**63, "take": "5d7d0ed0-d6c6-46a7-ab6b-e912c87f5299"}]},
        {"takes": [{"segment": 1, "take": 7}]},
        {"takes": [{"segment": 1, "take": "5d7d0ed0-d6c6-46a7-ab6b-e912c87f5299"}] * 2},
        {"takes": [{"segment": 1, "take": "x"}] * 201},
        {"takes": [], "all": True},
        {"takes": [{"segment": 1, "take": "5d7d0ed0-d6c6-46a7-ab6b-e912c87f5299", "loud": True}]},
    ],
    ids=range(12),
)
def test_list_of_approvals_that_cannot_be_read_is_refused(
    api: APIClient, body: dict[str, Any]
) -> None:
    answer = api.post(f"{LIST}/approve", body)
    assert answer.status_code == 400
    assert answer.json()["errors"]
