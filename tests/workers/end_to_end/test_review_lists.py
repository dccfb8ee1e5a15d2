"""The review list reads JSON in SQL, which every database does in its own way: both are asked."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from synth.accounts.keys import create_key
from synth.models import RenderJob
from synth.transitions.takes import flagged
from tests.factories import make_user
from tests.synth.review.rows import keep, make_spoken_job
from tests.workers.pairs import Pair

pytestmark = pytest.mark.django_db(transaction=True)


def test_list_filters_pages_and_approvals_are_alike_in_both_databases(pair: Pair) -> None:
    owner = make_user("owner")
    api = APIClient(HTTP_AUTHORIZATION=f"Bearer {create_key(owner, 'test')[1]}")
    job = make_spoken_job(owner, 0.5, 1.0, None, 0.2, 1.0)
    rows = {segment.index: segment for segment in job.segments.all()}
    keep(rows[0], score=0.4, flags=["noise", "stuck"])
    keep(rows[4], score=0.9, flags=["level"])
    kept = keep(rows[4], score=1.0)
    rows[4].candidates = [
        flagged(one, {"rhythm": 0.6}) if one["take"] == str(kept.pk) else one
        for one in rows[4].candidates
    ]
    rows[4].save()
    short = make_spoken_job(owner, 1.0, status="partial", error_code="book_segments_short")
    short.segments.update(spoken_text="Nobody can say so much in less than a second. " * 4)
    make_spoken_job(make_user("other"), 0.1, None)

    def listed(**query: str) -> list[dict[str, Any]]:
        answer = api.get("/api/v1/review", query)
        assert answer.status_code == 200, answer.content
        found: list[dict[str, Any]] = answer.json()["results"]
        return found

    found = listed()
    assert [one["reason"] for one in found] == ["failed", "short", "flagged", "flagged", "flagged"]
    assert [one["score"] for one in found] == [0.0, None, 0.2, 0.4, 0.6]
    assert [one["index"] for one in listed(flag="stuck")] == [0]
    assert [one["index"] for one in listed(flag="rhythm")] == [4]
    assert [one["index"] for one in listed(status="failed")] == [2]
    first = api.get("/api/v1/review?limit=2").json()
    second = api.get(first["next"]).json()
    assert [one["id"] for one in [*first["results"], *second["results"]]] == [
        one["id"] for one in found[:4]
    ]
    assert [one["id"] for one in api.get(second["previous"]).json()["results"]] == [
        one["id"] for one in first["results"]
    ]

    takes = [{"segment": one["id"], "take": one["take"]} for one in found[1:]]
    answer = api.post("/api/v1/review/approve", {"takes": takes}, format="json")

    assert answer.status_code == 200, answer.content
    assert answer.json()["refused"] == []
    assert [one["reason"] for one in listed()] == ["failed"]
    assert len(listed(approved="true")) == 4
    assert RenderJob.objects.get(pk=short.pk).status == "succeeded"
    one = takes[1]
    again = api.post(f"/api/v1/review/{one['segment']}/approve", {"take": one["take"]})
    assert (again.status_code, again.json()["approved"]) == (200, True)
