"""Every route of webhooks, asked by another user, by a superuser, and by nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from rest_framework.test import APIClient

from synth.accounts.keys import create_key
from synth.models import WebhookDelivery, WebhookEndpoint, WebhookSecret
from synth.webhooks.endpoints import secret_of
from tests.api.test_other_tenant import WEBHOOKS, Route
from tests.factories import make_delivery, make_ended_job, make_endpoint, make_user

pytestmark = pytest.mark.django_db(transaction=True)

LISTS = sorted({("webhook-endpoints", "GET"), ("webhook-deliveries", "GET")})
# What every user has one of, so that there is nothing to be refused.
OWN = {("webhook-secret", "GET"), ("webhook-secret-rotate", "POST"), ("webhook-endpoints", "POST")}
BELOW = sorted(WEBHOOKS - OWN - set(LISTS))


@dataclass(frozen=True)
class Things:
    """A user's webhooks, and who asks for them."""

    first: APIClient
    second: APIClient
    boss: APIClient
    endpoint: WebhookEndpoint
    delivery: WebhookDelivery

    def path(self, name: str) -> str:
        """Return the path of a route."""
        if name.startswith("webhook-endpoint") and name != "webhook-endpoints":
            return reverse(name, args=[self.endpoint.pk])
        return reverse(name, args=[self.delivery.pk] if "delivery" in name else [])

    def rows(self) -> list[Any]:
        """Return all that is stored of webhooks."""
        tables: list[Any] = [WebhookEndpoint, WebhookDelivery, WebhookSecret]
        return [list(table.objects.order_by("pk").values()) for table in tables]


@pytest.fixture
def things(job_services: None, client_of: Callable[[User], APIClient]) -> Things:
    """A user with webhooks, another one, and a superuser with an admin key."""
    first = make_user("first")
    _, key = create_key(
        make_user("boss", is_superuser=True), "all", scopes=("read", "jobs", "admin")
    )
    secret_of(first)
    return Things(
        client_of(first),
        client_of(make_user("second")),
        APIClient(HTTP_AUTHORIZATION=f"Bearer {key}"),
        make_endpoint(first),
        make_delivery(first, job=make_ended_job(first)),
    )


@pytest.mark.parametrize("route", BELOW)
def test_webhook_of_another_user_does_not_exist(route: Route, things: Things) -> None:
    name, method = route
    before = things.rows()

    for client in (things.second, things.boss):
        answer = client.generic(method, things.path(name))

        assert answer.status_code == 404
        assert answer.json()["code"] in ("endpoint_not_found", "delivery_not_found")
    assert things.rows() == before


@pytest.mark.parametrize("route", BELOW)
def test_what_another_user_is_refused_its_owner_gets(route: Route, things: Things) -> None:
    assert things.first.generic(route[1], things.path(route[0])).status_code < 300


@pytest.mark.parametrize("route", LISTS)
def test_list_holds_nothing_of_another_user(route: Route, things: Things) -> None:
    path = things.path(route[0])

    assert len(things.first.get(path).json()["results"]) == 1
    assert things.second.get(path).json()["results"] == []
    assert things.boss.get(path).json()["results"] == []


def test_filter_by_anothers_job_finds_nothing(things: Things) -> None:
    path = things.path("webhook-deliveries")

    assert things.second.get(path, {"job": str(things.delivery.job_id)}).json()["results"] == []
    assert len(things.first.get(path, {"job": str(things.delivery.job_id)}).json()["results"]) == 1


def test_every_user_has_a_secret_of_his_own(things: Things) -> None:
    path = things.path("webhook-secret")
    first = things.first.get(path).json()["secret"]

    assert things.second.get(path).json()["secret"] != first
    things.second.post(things.path("webhook-secret-rotate"))
    assert things.first.get(path).json()["secret"] == first


@pytest.mark.parametrize("route", sorted(WEBHOOKS))
def test_nothing_is_there_without_a_key(route: Route, things: Things) -> None:
    before = things.rows()

    answer = APIClient().generic(route[1], things.path(route[0]))

    assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")
    assert things.rows() == before
