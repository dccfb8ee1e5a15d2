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
from synth.webhooks import MOST_ENDPOINTS
from tests.factories import make_delivery, make_endpoint, make_job

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]

ENDPOINTS = reverse("webhook-endpoints")
DELIVERIES = reverse("webhook-deliveries")
SECRET = reverse("webhook-secret")
URL = "https://hooks.example/in"


def test_endpoint_is_made_read_changed_and_deleted(api: APIClient, operator: User) -> None:
    made = api.post(ENDPOINTS, {"url": URL})

    assert made.status_code == 201
    path = made.headers["Location"]
    body = made.json()
    assert api.get(path).json() == body
    assert api.get(ENDPOINTS).json()["results"] == [body]
    shown = (URL, WebhookDelivery.Event.values, True)
    assert (body["url"], body["events"], body["enabled"]) == shown

    changed = api.patch(path, {"events": ["job.failed"], "enabled": False}).json()
    assert (changed["url"], changed["events"], changed["enabled"]) == (URL, ["job.failed"], False)
    assert api.patch(path, {}).json() == changed
    assert api.get(path).json() == changed

    assert api.delete(path).status_code == 204
    assert api.get(path).status_code == 404
    assert not WebhookEndpoint.objects.exists()


@pytest.mark.parametrize(
    ("attr", "bodies"),
    [
        ("url", [({}, "required"), ({"url": None}, "null"), ({"url": 1}, "invalid"),
                 ({"url": ["x"]}, "invalid"), ({"url": {}}, "invalid"), ({"url": ""}, "url_scheme"),
                 ({"url": "http://127.0.0.1/"}, "url_private_address"),
                 ({"url": "http://localhost:9/"}, "url_private_address"),
                 ({"url": "file:///etc/passwd"}, "url_scheme"),
                 ({"url": "https://a.example/\x00"}, "url_invalid"),
                 ({"url": "https://a.example/" + "x" * 2000}, None)]),
        ("events", [({"url": URL, "events": []}, "invalid"),
                    ({"url": URL, "events": "job.failed"}, "invalid"),
                    ({"url": URL, "events": ["job.done"]}, "invalid"),
                    ({"url": URL, "events": [1]}, "invalid"),
                    ({"url": URL, "events": [{}]}, "invalid"),
                    ({"url": URL, "events": [["job.failed"]]}, "invalid")]),
        ("events", [({"url": URL, "events": None}, "null"),
                    ({"url": URL, "events": ["test", "test"]}, "repeated")]),
        ("enabled", [({"url": URL, "enabled": 1}, "invalid"),
                     ({"url": URL, "enabled": "yes"}, "invalid"),
                     ({"url": URL, "enabled": None}, "null")]),
        ("secret", [({"url": URL, "secret": "whsec_x"}, "unknown_field")]),
        ("owner", [({"url": URL, "owner": 1}, "unknown_field")]),
        (None, [([], "invalid"), ("x", "invalid")]),
    ],
)  # fmt: skip
def test_endpoint_that_is_none_is_refused_by_field(
    attr: str | None, bodies: list[tuple[Any, str | None]], api: APIClient, operator: User
) -> None:
    path = reverse("webhook-endpoint", args=[make_endpoint(operator).pk])
    for body, code in bodies:
        answers = [api.post(ENDPOINTS, body, format="json")]
        if isinstance(body, dict) and body:
            answers.append(api.patch(path, body, format="json"))
        for answer in answers:
            assert answer.status_code == 400, body
            assert answer.headers["Content-Type"] == "application/problem+json"
            errors = answer.json()["errors"]
            assert attr in [error["attr"] for error in errors], body
            assert code is None or code in [error["code"] for error in errors], body
    assert WebhookEndpoint.objects.filter(url=URL).count() == 0


def test_half_a_surrogate_pair_is_refused_and_a_private_url_taken_where_that_is_allowed(
    api: APIClient, settings: Settings
) -> None:
    half = '{"url": "https://a.example/\\ud800"}'
    answer = api.generic("POST", ENDPOINTS, half, "application/json")
    assert (answer.status_code, answer.json()["code"]) == (400, "url_invalid")

    settings.ALLOW_PRIVATE_URLS = True
    assert api.post(ENDPOINTS, {"url": "http://127.0.0.1:1/"}).status_code == 201


def test_one_endpoint_too_many_is_a_conflict(api: APIClient, operator: User) -> None:
    for _ in range(MOST_ENDPOINTS):
        make_endpoint(operator)

    answer = api.post(ENDPOINTS, {"url": URL})

    assert (answer.status_code, answer.json()["code"]) == (409, "too_many_endpoints")


@pytest.mark.parametrize("change", [{"enabled": False}, {"url": URL}, None])
def test_what_waits_for_an_endpoint_that_goes_is_not_sent(
    change: dict[str, Any] | None, api: APIClient, operator: User
) -> None:
    endpoint = make_endpoint(operator)
    row = make_delivery(operator, url=endpoint.url)
    path = reverse("webhook-endpoint", args=[endpoint.pk])

    api.patch(path, {"events": ["test"]})
    row.refresh_from_db()
    assert row.status == "queued"
    api.delete(path) if change is None else api.patch(path, change)

    row.refresh_from_db()
    assert (row.status, row.error_code) == ("failed", "endpoint_disabled")


def test_endpoint_is_tried(
    api: APIClient, operator: User, sent_tasks: Callable[[str], list[str]]
) -> None:
    endpoint = make_endpoint(operator, events=["job.failed"])

    answer = api.post(reverse("webhook-endpoint-test", args=[endpoint.pk]))

    assert answer.status_code == 202
    body = answer.json()
    assert (body["event"], body["url"], body["status"]) == ("test", endpoint.url, "queued")
    assert api.get(answer.headers["Location"]).json()["id"] == body["id"]
    assert len(sent_tasks("deliver")) == 1


def test_deliveries_are_listed_newest_first_by_pages(api: APIClient, operator: User) -> None:
    rows = [make_delivery(operator) for _ in range(3)]

    first = api.get(DELIVERIES, {"limit": 2}).json()
    second = api.get(first["next"]).json()

    found = [one["id"] for one in first["results"] + second["results"]]
    assert found == [str(row.pk) for row in reversed(rows)]
    assert "body" not in first["results"][0]


def test_deliveries_are_filtered(api: APIClient, operator: User) -> None:
    job = make_job(owner=operator)
    failed = make_delivery(operator, status="failed", event="job.failed", job=job)
    make_delivery(operator, event="voice.ready")

    for query in (
        {"status": "failed"},
        {"status": "failed,claimed"},
        {"event": "job.failed"},
        {"job": str(job.pk)},
        {"status": "failed", "event": "job.failed", "job": str(job.pk)},
    ):
        found = api.get(DELIVERIES, query).json()["results"]
        assert [one["id"] for one in found] == [str(failed.pk)], query
    assert api.get(DELIVERIES, {"status": "claimed"}).json()["results"] == []


def test_filter_that_cannot_be_read_is_refused(api: APIClient) -> None:
    for query in (
        "status=", "status=gone", "event=x", "job=x", "job=1", "job=%00", "url=x",
        "status=failed&status=queued", "limit=0", "limit=x", "cursor=x",
    ):  # fmt: skip
        answer = api.get(f"{DELIVERIES}?{query}")
        assert answer.status_code == 400, query
        assert answer.headers["Content-Type"] == "application/problem+json", query


def test_delivery_shows_what_is_sent_and_when_next_and_is_sent_again(
    api: APIClient, operator: User, sent_tasks: Callable[[str], list[str]]
) -> None:
    row = make_delivery(operator, error_code="url_status", response_status=500)
    path = reverse("webhook-delivery", args=[row.pk])

    body = api.get(path).json()
    assert body["body"] == row.body
    assert (body["response_status"], body["error_code"], body["job"]) == (500, "url_status", None)
    assert body["next_attempt_at"] is not None
    WebhookDelivery.objects.update(status="delivered")
    assert api.get(path).json()["next_attempt_at"] is None

    answer = api.post(f"{path}/resend")
    assert (answer.status_code, answer.json()["status"]) == (202, "queued")
    assert len(sent_tasks("deliver")) == 1
    WebhookDelivery.objects.update(status="claimed")
    refused = api.post(f"{path}/resend")
    assert (refused.status_code, refused.json()["code"]) == (409, "delivery_in_progress")
    assert refused.headers["Retry-After"]


def test_secret_is_read_and_rotated(api: APIClient) -> None:
    first = api.get(SECRET).json()
    assert api.get(SECRET).json() == first
    assert first["previous_valid_until"] is None

    second = api.post(reverse("webhook-secret-rotate")).json()

    assert second["secret"] != first["secret"]
    assert second["previous_valid_until"] is not None
    assert api.get(SECRET).json() == second


def test_action_takes_no_fields(api: APIClient, operator: User) -> None:
    paths = [
        reverse("webhook-secret-rotate"),
        reverse("webhook-endpoint-test", args=[make_endpoint(operator).pk]),
        reverse("webhook-delivery-resend", args=[make_delivery(operator).pk]),
    ]
    for path in paths:
        assert api.post(path, {"x": 1}).json()["code"] == "unknown_field", path
        assert api.post(f"{path}?x=1").json()["code"] == "unknown_field", path
