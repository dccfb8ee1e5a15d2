"""Batches and their items, asked for by another user, and without a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from rest_framework.test import APIClient

from synth.models import Batch, RenderJob
from tests.api.test_other_tenant import BATCHES, Route
from tests.factories import make_batch, make_user, make_voice

pytestmark = pytest.mark.django_db(transaction=True)
BELOW = sorted(route for route in BATCHES if route[0] != "batches")
STATES = ("queued", "succeeded", "failed", "cancelled")
KEY = "a-key-that-both-use"


@pytest.fixture
def first(job_services: None) -> User:
    """A user with batches in several states."""
    user = make_user("first")
    for status in STATES:
        make_batch(owner=user, status=status)
    return user


def rows() -> list[dict[str, Any]]:
    return [
        dict(row) for model in (Batch, RenderJob) for row in model.objects.order_by("pk").values()
    ]


def batches_of(user: User) -> list[Batch]:
    return list(Batch.objects.filter(owner=user, kind="texts").order_by("created_at"))


@pytest.mark.parametrize("route", BELOW)
def test_batch_of_another_user_does_not_exist(
    route: Route, first: User, client_of: Callable[[User], APIClient]
) -> None:
    name, method = route
    second, before = client_of(make_user("second")), rows()

    for batch in batches_of(first):
        answer = second.generic(method, reverse(name, args=[batch.pk]))

        assert (answer.status_code, answer.json()["code"]) == (404, "batch_not_found")
    assert rows() == before


@pytest.mark.parametrize("route", BELOW)
def test_what_another_user_is_refused_the_owner_of_a_batch_gets(
    route: Route, first: User, client_of: Callable[[User], APIClient]
) -> None:
    name, method = route
    client = client_of(first)

    codes = [
        client.generic(method, reverse(name, args=[batch.pk])).status_code
        for batch in batches_of(first)
    ]

    assert min(codes) < 300


def test_items_and_lists_hold_nothing_of_another_user(
    first: User, client_of: Callable[[User], APIClient]
) -> None:
    second = client_of(make_user("second"))
    batches = batches_of(first)
    item = RenderJob.objects.filter(batch=batches[0]).first()
    assert item is not None

    for path in (
        "/api/v1/batches",
        "/api/v1/batches?status=queued,succeeded",
        f"/api/v1/jobs?batch={batches[0].pk}",
        f"/api/v1/jobs?ids={item.pk}",
    ):
        assert second.get(path).json()["results"] == []
    assert second.get(f"/api/v1/jobs/{item.pk}").status_code == 404


def test_same_idempotency_key_of_another_user_makes_a_batch_of_his_own(
    first: User, client_of: Callable[[User], APIClient]
) -> None:
    make_voice("Everybody", shared=True)
    body = {"items": [{"text": "Hello."}], "defaults": {"voice": "Everybody"}}
    headers = {"Idempotency-Key": KEY}

    answers = [
        client_of(user).post("/api/v1/batches", body, format="json", headers=headers)
        for user in (first, make_user("second"))
    ]

    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json()["id"] != answers[1].json()["id"]


@pytest.mark.parametrize("route", sorted(BATCHES))
def test_no_batch_is_there_without_a_key(route: Route, first: User) -> None:
    name, method = route
    arguments = [] if name == "batches" else [batches_of(first)[0].pk]

    answer = APIClient().generic(method, reverse(name, args=arguments))

    assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")
