"""The client's review list: what it asks for, page by page, and what it sends."""

from __future__ import annotations

import json

import pytest

from tests.ttsweb.client.faulty_server import FaultyServer, json_answer, problem
from ttsweb.client import Client, ConflictError

TAKE = "5b0f4a0e-0d53-4bbb-8ad1-3f4e4b1b2f11"


def test_list_follows_the_pages_with_its_filters(client: Client, faulty: FaultyServer) -> None:
    following = f"{client.url}/api/v1/review?cursor=abc"
    faulty.script = [
        json_answer({"left": 2, "next": following, "previous": None, "results": [{"id": 7}]}),
        json_answer({"left": 2, "next": None, "previous": None, "results": [{"id": 8}]}),
    ]
    found = [item["id"] for item in client.review.list(flag="noise,level", approved=True)]

    assert found == [7, 8]
    asked = [request.path for request in faulty.requests]
    assert "flag=noise%2Clevel" in asked[0] and "approved=true" in asked[0]
    assert "cursor=abc" in asked[1]
    assert "approved=true" in asked[1]


def test_approval_names_the_take_that_was_heard(client: Client, faulty: FaultyServer) -> None:
    client.review.approve(7, TAKE)
    client.review.approve_all({7: TAKE})

    one, many = faulty.requests
    assert (one.method, one.path) == ("POST", "/api/v1/review/7/approve")
    assert json.loads(one.body) == {"take": TAKE}
    assert (many.method, many.path) == ("POST", "/api/v1/review/approve")
    assert json.loads(many.body) == {"takes": [{"segment": 7, "take": TAKE}]}


def test_take_that_changed_is_a_conflict(client: Client, faulty: FaultyServer) -> None:
    faulty.script = [problem(409, "take_changed")]
    with pytest.raises(ConflictError) as caught:
        client.review.approve(7, TAKE)
    assert caught.value.code == "take_changed"
