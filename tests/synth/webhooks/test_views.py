"""Webhooks over REST: endpoints, deliveries, the secret, and all that is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from pytest_django import Settings
from rest_framework.test import APIClient

from synth.models import WebhookDelivery, WebhookEndpoint
from synth.webhooks.endpoints import MOST_ENDPOINTS
from tests.factories import make_delivery, make_endpoint, make_job, make_user

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]

ENDPOINTS = reverse("webhook-endpoints")
DELIVERIES = reverse("webhook-deliveries")
SECRET = reverse("webhook-secret")
URL = "https://hooks.example/in"
EVENTS = WebhookDelivery.Event.values


@pytest.fixture
def user(job_services: None) -> User:
    """A user."""
    return make_user()


@pytest.fixture
def client(user: User, client_of: Callable[[User], APIClient]) -> APIClient:
    """A client with a key of that user."""
    return client_of(user)


def test_endpoint_is_made_read_changed_and_deleted(client: APIClient, user: User) -> None:
    made = client.post(ENDPOINTS, {"url": URL})

    assert made.status_code == 201
    path = made.headers["Location"]
    body = made.json()
    assert client.get(path).json() == body
    assert client.get(ENDPOINTS).json()["results"] == [body]
    assert (body["url"], body["events"], body["enabled"]) == (URL, EVENTS, True)

    changed = client.patch(path, {"events": ["job.failed"], "enabled": False}).json()
    assert (changed["url"], changed["events"], changed["enabled"]) == (URL, ["job.failed"], False)
    assert client.patch(path, {}).json() == changed
    assert client.get(path).json() == changed

    assert client.delete(path).status_code == 204
    assert client.get(path).status_code == 404
    assert not WebhookEndpoint.objects.exists()


@pytest.mark.parametrize(
    ("body", "attr", "code"),
    [
        ({}, "url", "required"),
        ({"url": None}, "url", "null"),
        ({"url": 1}, "url", "invalid"),
        ({"url": ["x"]}, "url", "invalid"),
        ({"url": {}}, "url", "invalid"),
        ({"url": ""}, "url", "url_scheme"),
        ({"url": "http://127.0.0.1/"}, "url", "url_private_address"),
        ({"url": "http://localhost:9/"}, "url", "url_private_address"),
        ({"url": "file:///etc/passwd"}, "url", "url_scheme"),
        ({"url": "https://a.example/\x00"}, "url", "url_invalid"),
        ({"url": "https://a.example/" + "x" * 2000}, "url", None),
        ({"url": URL, "events": []}, "events", "invalid"),
        ({"url": URL, "events": "job.failed"}, "events", "invalid"),
        ({"url": URL, "events": ["job.done"]}, "events", "invalid"),
        ({"url": URL, "events": [1]}, "events", "invalid"),
        ({"url": URL, "events": [{}]}, "events", "invalid"),
        ({"url": URL, "events": [["job.failed"]]}, "events", "invalid"),
        ({"url": URL, "events": None}, "events", "null"),
        ({"url": URL, "events": ["test", "test"]}, "events", "repeated"),
        ({"url": URL, "enabled": 1}, "enabled", "invalid"),
        ({"url": URL, "enabled": "yes"}, "enabled", "invalid"),
        ({"url": URL, "enabled": None}, "enabled", "null"),
        ({"url": URL, "secret": "whsec_x"}, "secret", "unknown_field"),
        ({"url": URL, "owner": 1}, "owner", "unknown_field"),
        ([], None, "invalid"),
        ("x", None, "invalid"),
    ],
)
def test_endpoint_that_is_none_is_refused_by_field(
    body: Any, attr: str | None, code: str | None, client: APIClient, user: User
) -> None:
    answers = [client.post(ENDPOINTS, body, format="json")]
    if isinstance(body, dict) and body:
        path = reverse("webhook-endpoint", args=[make_endpoint(user).pk])
        answers.append(client.patch(path, body, format="json"))

    for answer in answers:
        assert answer.status_code == 400
        assert answer.headers["Content-Type"] == "application/problem+json"
        errors = answer.json()["errors"]
        assert attr in [error["attr"] for error in errors]
        assert code is None or code in [error["code"] for error in errors]
    assert WebhookEndpoint.objects.filter(url=URL).count() == 0


def test_half_a_surrogate_pair_is_a_400(client: APIClient) -> None:
    answer = client.generic(
        "POST", ENDPOINTS, '{"url": "https://a.example/\\ud800"}', "application/json"
    )

    assert (answer.status_code, answer.json()["code"]) == (400, "url_invalid")


def test_private_url_is_taken_where_that_is_allowed(client: APIClient, settings: Settings) -> None:
    settings.ALLOW_PRIVATE_URLS = True

    assert client.post(ENDPOINTS, {"url": "http://127.0.0.1:1/"}).status_code == 201


def test_one_endpoint_too_many_is_a_conflict(client: APIClient, user: User) -> None:
    for _ in range(MOST_ENDPOINTS):
        make_endpoint(user)

    answer = client.post(ENDPOINTS, {"url": URL})

    assert (answer.status_code, answer.json()["code"]) == (409, "too_many_endpoints")


@pytest.mark.parametrize("change", [{"enabled": False}, {"url": URL}, None])
def test_what_waits_for_an_endpoint_that_goes_is_not_sent(
    change: dict[str, Any] | None, client: APIClient, user: User
) -> None:
    endpoint = make_endpoint(user)
    row = make_delivery(user, url=endpoint.url)
    path = reverse("webhook-endpoint", args=[endpoint.pk])

    client.patch(path, {"events": ["test"]})
    row.refresh_from_db()
    assert row.status == "queued"
    client.delete(path) if change is None else client.patch(path, change)

    row.refresh_from_db()
    assert (row.status, row.error_code) == ("failed", "endpoint_disabled")


def test_endpoint_is_tried(
    client: APIClient, user: User, sent_tasks: Callable[[str], list[str]]
) -> None:
    endpoint = make_endpoint(user, events=["job.failed"])

    answer = client.post(reverse("webhook-endpoint-test", args=[endpoint.pk]))

    assert answer.status_code == 202
    body = answer.json()
    assert (body["event"], body["url"], body["status"]) == ("test", endpoint.url, "queued")
    assert client.get(answer.headers["Location"]).json()["id"] == body["id"]
    assert len(sent_tasks("deliver")) == 1


def test_deliveries_are_listed_newest_first_by_pages(client: APIClient, user: User) -> None:
    rows = [make_delivery(user) for _ in range(3)]

    first = client.get(DELIVERIES, {"limit": 2}).json()
    second = client.get(first["next"]).json()

    found = [one["id"] for one in first["results"] + second["results"]]
    assert found == [str(row.pk) for row in reversed(rows)]
    assert "body" not in first["results"][0]


def test_deliveries_are_filtered(client: APIClient, user: User) -> None:
    job = make_job(owner=user)
    failed = make_delivery(user, status="failed", event="job.failed", job=job)
    make_delivery(user, event="voice.ready")

    for query in (
        {"status": "failed"},
        {"status": "failed,claimed"},
        {"event": "job.failed"},
        {"job": str(job.pk)},
        {"status": "failed", "event": "job.failed", "job": str(job.pk)},
    ):
        found = client.get(DELIVERIES, query).json()["results"]
        assert [one["id"] for one in found] == [str(failed.pk)], query
    assert client.get(DELIVERIES, {"status": "claimed"}).json()["results"] == []


@pytest.mark.parametrize(
    "query",
    [
        "status=", "status=gone", "event=x", "job=x", "job=1", "job=%00", "url=x",
        "status=failed&status=queued", "limit=0", "limit=x", "cursor=x",
    ],
)  # fmt: skip
def test_filter_that_cannot_be_read_is_refused(query: str, client: APIClient) -> None:
    answer = client.get(f"{DELIVERIES}?{query}")

    assert answer.status_code in (400, 404)
    assert answer.status_code == 400
    assert answer.headers["Content-Type"] == "application/problem+json"


def test_delivery_shows_what_is_sent_and_when_next(client: APIClient, user: User) -> None:
    row = make_delivery(user, error_code="url_status", response_status=500)

    body = client.get(reverse("webhook-delivery", args=[row.pk])).json()

    assert body["body"] == row.body
    assert (body["response_status"], body["error_code"], body["job"]) == (500, "url_status", None)
    assert body["next_attempt_at"] is not None
    WebhookDelivery.objects.update(status="delivered")
    body = client.get(reverse("webhook-delivery", args=[row.pk])).json()
    assert body["next_attempt_at"] is None


def test_delivery_is_sent_again(
    client: APIClient, user: User, sent_tasks: Callable[[str], list[str]]
) -> None:
    row = make_delivery(user, status="delivered")
    path = reverse("webhook-delivery-resend", args=[row.pk])

    answer = client.post(path)

    assert (answer.status_code, answer.json()["status"]) == (202, "queued")
    assert len(sent_tasks("deliver")) == 1
    WebhookDelivery.objects.update(status="claimed")
    refused = client.post(path)
    assert (refused.status_code, refused.json()["code"]) == (409, "delivery_in_progress")
    assert refused.headers["Retry-After"]


def test_secret_is_read_and_rotated(client: APIClient) -> None:
    first = client.get(SECRET).json()
    assert client.get(SECRET).json() == first
    assert first["previous_valid_until"] is None

    second = client.post(reverse("webhook-secret-rotate")).json()

    assert second["secret"] != first["secret"]
    assert second["previous_valid_until"] is not None
    assert client.get(SECRET).json() == second


def test_action_takes_no_fields(client: APIClient, user: User) -> None:
    paths = [
        reverse("webhook-secret-rotate"),
        reverse("webhook-endpoint-test", args=[make_endpoint(user).pk]),
        reverse("webhook-delivery-resend", args=[make_delivery(user).pk]),
    ]
    for path in paths:
        assert client.post(path, {"x": 1}).json()["code"] == "unknown_field"
        assert client.post(f"{path}?x=1").json()["code"] == "unknown_field"
