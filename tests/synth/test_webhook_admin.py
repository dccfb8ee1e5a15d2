"""Webhooks in the admin: deliveries are seen and sent again, endpoints made, the secret rotated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from synth.models import WebhookDelivery, WebhookEndpoint, WebhookSecret
from synth.webhooks.endpoints import MOST_ENDPOINTS, secret_of
from tests.factories import logged_in, make_delivery, make_endpoint, make_job, make_staff

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]

DELIVERIES = reverse("admin:synth_webhookdelivery_changelist")
ENDPOINTS = reverse("admin:synth_webhookendpoint_changelist")
ADD = reverse("admin:synth_webhookendpoint_add")
SECRETS = reverse("admin:synth_webhooksecret_changelist")
SUBMITTED = {"_form_submitted": "1"}
Status = WebhookDelivery.Status


@pytest.fixture
def staff(job_services: None) -> User:
    """A user who may do everything with webhooks, and is no superuser."""
    return make_staff(username="staff", about="webhook")


@pytest.fixture
def browser(staff: User) -> Client:
    return logged_in(staff)


@pytest.fixture
def boss() -> Client:
    return logged_in()


def page_of(name: str, row: Any) -> str:
    return reverse(f"admin:synth_{name}_change", args=[row.pk])


def test_deliveries_show_how_far_they_are(browser: Client, staff: User) -> None:
    job = make_job(owner=staff)
    row = make_delivery(
        staff, job=job, attempts=3, response_status=503, error_code="url_status",
        error_message="The URL answered with the status 503.",
    )  # fmt: skip

    listed = browser.get(DELIVERIES).content.decode()
    page = browser.get(page_of("webhookdelivery", row)).content.decode()

    assert row.url in listed
    assert "503 url_status" in listed
    for text in ("The URL answered with the status 503.", str(job.pk), "job.succeeded"):
        assert text in page


def test_deliveries_are_sent_again(
    browser: Client, staff: User, sent_tasks: Callable[[str], list[str]]
) -> None:
    failed = make_delivery(staff, status=Status.FAILED)
    busy = make_delivery(staff, status=Status.CLAIMED)
    data = {"action": "resend_chosen", "_selected_action": [str(failed.pk), str(busy.pk)]}

    page = browser.post(DELIVERIES, data, follow=True).content.decode()

    assert "1 webhook delivery: queued to be sent again." in page
    assert "not sent again, as the message is being sent right now." in page
    failed.refresh_from_db()
    assert failed.status == Status.QUEUED
    assert len(sent_tasks("deliver")) == 1

    other = make_delivery(status=Status.FAILED)  # of another user
    browser.post(DELIVERIES, {"action": "resend_chosen", "_selected_action": [str(other.pk)]})
    browser.post(reverse("admin:synth_webhookdelivery_resend_this", args=[other.pk]), SUBMITTED)
    other.refresh_from_db()
    assert other.status == Status.FAILED

    WebhookDelivery.objects.update(status=Status.DELIVERED)
    url = reverse("admin:synth_webhookdelivery_resend_this", args=[failed.pk])
    answer = browser.post(url, SUBMITTED)
    assert answer.headers["HX-Redirect"] == page_of("webhookdelivery", failed)
    failed.refresh_from_db()
    assert failed.status == Status.QUEUED


def test_deliveries_can_be_neither_made_nor_changed_nor_deleted(
    browser: Client, staff: User
) -> None:
    row = make_delivery(staff)

    assert browser.get(reverse("admin:synth_webhookdelivery_add")).status_code == 403
    assert (
        browser.post(page_of("webhookdelivery", row), {"url": "https://x.example/"}).status_code
        == 403
    )
    delete = reverse("admin:synth_webhookdelivery_delete", args=[row.pk])
    assert browser.post(delete, {"post": "yes"}).status_code == 403
    assert WebhookDelivery.objects.filter(pk=row.pk, url=row.url).exists()


def test_user_sees_ones_own_and_a_superuser_all(browser: Client, boss: Client, staff: User) -> None:
    rows = make_delivery(staff), make_delivery()
    endpoints = make_endpoint(staff), make_endpoint()

    for name, path, (own, other) in (
        ("webhookdelivery", DELIVERIES, rows),
        ("webhookendpoint", ENDPOINTS, endpoints),
    ):
        listed = browser.get(path).content.decode()
        assert own.url in listed
        assert other.url not in listed
        assert browser.get(page_of(name, other)).status_code == 302
        everything = boss.get(path).content.decode()
        assert own.url in everything
        assert other.url in everything
    assert boss.get(page_of("webhookdelivery", rows[1])).status_code == 200


def test_endpoint_is_made_changed_tried_and_deleted(
    browser: Client, staff: User, sent_tasks: Callable[[str], list[str]]
) -> None:
    values = {"url": "https://hooks.example/a", "events": ["job.failed"], "enabled": "on"}

    assert browser.post(ADD, values).status_code == 302
    row = WebhookEndpoint.objects.get()
    assert (row.owner, row.url, row.events) == (staff, values["url"], ["job.failed"])

    waiting = make_delivery(staff, url=row.url)
    del values["enabled"]
    assert browser.post(page_of("webhookendpoint", row), values).status_code == 302
    row.refresh_from_db()
    waiting.refresh_from_db()
    assert not row.enabled
    assert waiting.error_code == "endpoint_disabled"

    browser.post(ENDPOINTS, {"action": "test_chosen", "_selected_action": [str(row.pk)]})
    assert WebhookDelivery.objects.filter(event="test", owner=staff).count() == 1
    assert len(sent_tasks("deliver")) == 1

    browser.post(reverse("admin:synth_webhookendpoint_delete", args=[row.pk]), {"post": "yes"})
    assert not WebhookEndpoint.objects.exists()


@pytest.mark.parametrize("url", ["http://127.0.0.1/", "ftp://hooks.example/", "nonsense"])
def test_url_that_may_not_be_used_is_refused_in_the_form(browser: Client, url: str) -> None:
    page = browser.post(ADD, {"url": url, "events": ["test"], "enabled": "on"})
    assert page.status_code == 200
    assert "errorlist" in page.content.decode() or "error" in page.content.decode()
    assert not WebhookEndpoint.objects.exists()


def test_one_endpoint_too_many_is_refused_in_words(browser: Client, staff: User) -> None:
    for _ in range(MOST_ENDPOINTS):
        make_endpoint(staff)
    values = {"url": "https://hooks.example/a", "events": ["test"], "enabled": "on"}
    page = browser.post(ADD, values, follow=True).content.decode()
    assert "the limit for each user" in page
    assert WebhookEndpoint.objects.count() == MOST_ENDPOINTS


def test_secret_is_shown_to_its_user_alone_and_rotated(
    browser: Client, boss: Client, staff: User
) -> None:
    assert browser.get(SECRETS).status_code == 200
    row = WebhookSecret.objects.get(user=staff)
    page = page_of("webhooksecret", row)
    assert row.secret in browser.get(page).content.decode()
    assert boss.get(page).status_code == 302

    url = reverse("admin:synth_webhooksecret_rotate_this", args=[row.pk])
    assert browser.post(url, SUBMITTED).headers["HX-Redirect"] == page

    new = secret_of(staff)
    assert (new.secret != row.secret, new.previous) == (True, row.secret)
    assert new.secret in browser.get(page).content.decode()
