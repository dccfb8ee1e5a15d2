"""The review list over REST: what is in it, in which order, for whom; and approvals."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from synth.models import RenderJob, Segment
from synth.transitions.takes import flagged
from tests.answers import refusal_of
from tests.factories import make_book, make_take, make_user
from tests.synth.review.rows import keep, make_spoken_job

pytestmark = pytest.mark.django_db(transaction=True)
LIST = "/api/v1/review"


def listed(api: APIClient, **query: str) -> list[dict[str, Any]]:
    answer = api.get(LIST, query)
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()["results"]
    return found


def ids(api: APIClient, **query: str) -> list[int]:
    return [one["id"] for one in listed(api, **query)]


def is_hand_picked(segment: Segment) -> bool:
    segment.refresh_from_db()
    return segment.is_hand_picked


def approve(api: APIClient, segment: Segment, take: object = None) -> Any:
    body = {"take": str(take or segment.take_id)}
    return api.post(f"{LIST}/{segment.pk}/approve", body)


def test_failed_comes_first_then_the_worst_score_and_nothing_that_is_good(
    api: APIClient, operator: User
) -> None:
    first = make_spoken_job(operator, 0.5, 1.0, None)
    second = make_spoken_job(operator, 0.2, 0.8)
    rows = [list(job.segments.order_by("index")) for job in (first, second)]
    worst_first = [rows[0][2], rows[1][0], rows[0][0], rows[1][1]]
    reasons = ["failed", "flagged", "flagged", "flagged"]
    assert [(one["id"], one["score"], one["reason"]) for one in listed(api)] == [
        (segment.pk, score, reason)
        for segment, score, reason in zip(worst_first, (0.0, 0.2, 0.5, 0.8), reasons, strict=True)
    ]


def test_item_has_all_that_a_person_needs(api: APIClient, operator: User) -> None:
    job = make_spoken_job(operator, 1.0, 1.0, 0.3, 1.0)
    book = make_book(operator, job=job, title="Cattle")
    bad = job.segments.get(index=2)
    keep(bad, score=0.2, flags=["noise", "level"])
    around = {one.index: one for one in job.segments.all()}

    item = listed(api)[0]

    names = ("job", "book", "title", "chapter", "index", "text", "spoken_text")
    assert [item[name] for name in names] == [
        str(job.pk), str(book.pk), "Cattle", {"index": 0, "title": ""}, 2, bad.text,
        bad.spoken_text,
    ]  # fmt: skip
    assert [one["name"] for one in item["flags"]] == ["noise", "level"]
    assert all(one["sentence"].endswith(".") for one in item["flags"])
    assert [one["id"] for one in item["before"]] == [around[0].pk, around[1].pk]
    assert [one["id"] for one in item["after"]] == [around[3].pk]
    assert [(one["score"], one["is_kept"]) for one in item["takes"]] == [(0.3, False), (0.2, True)]
    assert item["takes"][0]["measures"] == [{"name": "too_short", "value": 0.2, "limit": 1.5}]
    audio = f"/api/v1/jobs/{job.pk}/segments/{bad.pk}/audio"
    assert [take["audio_url"] for take in item["takes"]] == [
        f"{audio}?take={take['take']}" for take in item["takes"]
    ]
    assert item["after"][0]["audio_url"].endswith(f"/segments/{around[3].pk}/audio")


def test_flag_tells_its_number_in_a_sentence(api: APIClient, operator: User) -> None:
    make_spoken_job(operator, 0.3)
    [flag] = listed(api)[0]["flags"]
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


def test_filters(api: APIClient, operator: User) -> None:
    job = make_spoken_job(operator, 0.2, 1.0, None, 0.4)
    rows = {segment.index: segment for segment in job.segments.all()}
    keep(rows[1], score=0.6, flags=["noise"])
    assert approve(api, rows[3]).status_code == 200
    expected = {
        "status=failed": [2], "status=done": [0, 1], "status=failed,done": [2, 0, 1],
        "flag=noise": [1], "flag=noise,too_short": [0, 1], "flag=stuck": [],
        "approved=false": [2, 0, 1], "approved=true": [3], "limit=2": [2, 0],
    }  # fmt: skip
    assert expected == {
        query: [one["index"] for one in listed(api, **dict(parse_qsl(query)))] for query in expected
    }


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


def test_filter_that_cannot_be_read_is_refused(api: APIClient) -> None:
    def cursor(position: bytes) -> str:
        return "cursor=" + base64.b64encode(position).decode()

    for query, code in (
        ("book=7", "invalid"), ("job=nothing", "invalid"), ("flag=loud", "invalid"),
        ("flag=", "blank"), ("status=queued", "invalid"), ("approved=yes", "invalid"),
        ("limit=101", "invalid"), ("limit=0", "invalid"), ("colour=red", "unknown_field"),
        ("flag=noise&flag=level", "repeated"), ("cursor=zzz", "cursor_invalid"),
        (cursor(b"p=2026-01-01"), "cursor_invalid"), (cursor(b"p=-1"), "cursor_invalid"),
        (cursor(b"p=99999999999999999999"), "cursor_invalid"),
        ("book=%00", "null_characters_not_allowed"),
    ):  # fmt: skip
        assert refusal_of(api.get(f"{LIST}?{query}")) == (400, code), query


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
    takes = [{"segment": segment.pk, "take": str(segment.take_id)}]
    many = api.post(f"{LIST}/approve", {"takes": takes}).json()

    assert listed(api) == []
    for answer in (api.get(f"{LIST}/{segment.pk}"), approve(api, segment)):
        assert refusal_of(answer) == (404, "segment_not_found")
    assert many["approved"] == []
    assert [one["code"] for one in many["refused"]] == ["segment_not_found"]
    assert not is_hand_picked(segment)
    assert ids(client_of(make_user("root", is_superuser=True))) == [segment.pk]


def test_approved_take_is_kept_by_hand_and_leaves_the_list(api: APIClient, operator: User) -> None:
    job = make_spoken_job(operator, 0.3, 1.0)
    segment, take = job.segments.get(index=0), job.segments.get(index=0).take_id
    answer, again = approve(api, segment), approve(api, segment)
    assert (answer.status_code, again.status_code) == (200, 200)
    assert (answer.json()["approved"], answer.json()["reason"]) == (True, None)
    assert answer.json() == again.json()
    assert is_hand_picked(segment)
    assert (segment.take_id, segment.status) == (take, "done")
    assert len(segment.candidates) == 1
    assert listed(api) == []
    job.refresh_from_db()
    assert (job.status, job.segments_done) == ("succeeded", 2)


def test_take_that_is_no_longer_kept_is_not_approved(api: APIClient, operator: User) -> None:
    segment = make_spoken_job(operator, 0.3).segments.get()
    old = segment.take_id
    keep(segment, score=0.4)
    assert refusal_of(approve(api, segment, old)) == (409, "take_changed")
    assert not is_hand_picked(segment)
    assert ids(api) == [segment.pk]


@pytest.mark.parametrize(
    ("segment", "job", "code"),
    [
        ({"status": "failed", "take": None}, {}, "segment_without_audio"),
        ({"status": "queued"}, {}, "segment_unfinished"),
        ({"status": "claimed"}, {}, "segment_unfinished"),
        ({}, {"cancel_requested": True}, "job_cancelled"),
        ({}, {"status": "cancelled"}, "job_cancelled"),
    ],
)
def test_what_stands_in_the_way_of_an_approval_is_told(
    api: APIClient, operator: User, segment: dict[str, Any], job: dict[str, Any], code: str
) -> None:
    row = make_spoken_job(operator, 0.3).segments.get()
    RenderJob.objects.update(**job)
    Segment.objects.update(**segment)
    answer = approve(api, row, row.take_id)
    assert refusal_of(answer) == (409, code)
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


def test_list_of_approvals_that_cannot_be_read_is_refused(api: APIClient) -> None:
    one = {"segment": 1, "take": "5d7d0ed0-d6c6-46a7-ab6b-e912c87f5299"}
    takes: list[Any] = [
        [], "all", [{"segment": 1}], [one | {"segment": "1"}], [one | {"segment": True}],
        [one | {"segment": 2**63}], [one | {"take": 7}], [one] * 2, [one | {"take": "x"}] * 201,
        [one | {"loud": True}],
    ]  # fmt: skip
    for body in ({}, {"takes": [], "all": True}, *({"takes": wrong} for wrong in takes)):
        answer = api.post(f"{LIST}/approve", body)
        assert answer.status_code == 400, body
        assert answer.json()["errors"], body
