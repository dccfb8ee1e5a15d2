"""Webhooks in the admin: deliveries are seen and sent again, endpoints made, the secret rotated."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from synth.models import WebhookDelivery, WebhookEndpoint, WebhookSecret
from synth.webhooks import MOST_ENDPOINTS, secret_of
from tests.factories import logged_in, make_delivery, make_endpoint, make_job, make_staff
from tests.synth.admin.pages import act, page_of, read

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]

DELIVERIES = reverse("admin:synth_webhookdelivery_changelist")
ENDPOINTS = reverse("admin:synth_webhookendpoint_changelist")
ADD = reverse("admin:synth_webhookendpoint_add")
SUBMITTED = {"_form_submitted": "1"}
Status = WebhookDelivery.Status


@pytest.fixture
def operator(job_services: None) -> User:
    """One of the staff, who may edit webhooks."""
    return make_staff(username="staff", about="webhook")


@pytest.fixture
def boss() -> Client:
    return logged_in()


def status_of(row: WebhookDelivery) -> str:
    row.refresh_from_db()
    return row.status


def test_deliveries_show_how_far_they_are(browser: Client, operator: User) -> None:
    job = make_job(owner=operator)
    row = make_delivery(
        operator, job=job, attempts=3, response_status=503, error_code="url_status",
        error_message="The URL answered with the status 503.",
    )  # fmt: skip

    listed, page = read(browser, DELIVERIES), read(browser, page_of(row))

    assert row.url in listed and "503 url_status" in listed
    for text in ("The URL answered with the status 503.", str(job.pk), "job.succeeded"):
        assert text in page


def test_deliveries_are_sent_again(
    browser: Client, operator: User, sent_tasks: Callable[[str], list[str]]
) -> None:
    failed = make_delivery(operator, status=Status.FAILED)
    page = act(browser, "resend_chosen", failed, make_delivery(operator, status=Status.CLAIMED))
    assert "1 webhook delivery: queued to be sent again." in page
    assert "not sent again, as the message is being sent right now." in page
    assert status_of(failed) == Status.QUEUED
    assert len(sent_tasks("deliver")) == 1

    other = make_delivery(status=Status.FAILED)  # of another user
    act(browser, "resend_chosen", other)
    browser.post(page_of(other, "resend_this"), SUBMITTED)
    assert status_of(other) == Status.FAILED

    WebhookDelivery.objects.update(status=Status.DELIVERED)
    answer = browser.post(page_of(failed, "resend_this"), SUBMITTED)
    assert answer.headers["HX-Redirect"] == page_of(failed)
    assert status_of(failed) == Status.QUEUED


def test_deliveries_can_be_neither_made_nor_changed_nor_deleted(
    browser: Client, operator: User
) -> None:
    row = make_delivery(operator)

    assert browser.get(reverse("admin:synth_webhookdelivery_add")).status_code == 403
    for path, sent in (
        (page_of(row), {"url": "https://x.example/"}),
        (page_of(row, "delete"), {"post": "yes"}),
    ):
        assert browser.post(path, sent).status_code == 403
    assert WebhookDelivery.objects.filter(pk=row.pk, url=row.url).exists()


def test_user_sees_ones_own_and_a_superuser_all(
    browser: Client, boss: Client, operator: User
) -> None:
    rows = make_delivery(operator), make_delivery()
    endpoints = make_endpoint(operator), make_endpoint()

    for path, (own, other) in ((DELIVERIES, rows), (ENDPOINTS, endpoints)):
        listed, everything = read(browser, path), read(boss, path)
        assert own.url in listed and other.url not in listed
        assert browser.get(page_of(other)).status_code == 302
        assert own.url in everything and other.url in everything
        assert boss.get(page_of(other)).status_code == 200


def test_endpoint_is_made_changed_tried_and_deleted(
    browser: Client, operator: User, sent_tasks: Callable[[str], list[str]]
) -> None:
    values = {"url": "https://hooks.example/a", "events": ["job.failed"], "enabled": "on"}

    assert browser.post(ADD, values).status_code == 302
    row = WebhookEndpoint.objects.get()
    assert (row.owner, row.url, row.events) == (operator, values["url"], ["job.failed"])

    waiting = make_delivery(operator, url=row.url)
    del values["enabled"]
    assert browser.post(page_of(row), values).status_code == 302
    row.refresh_from_db()
    waiting.refresh_from_db()
    assert not row.enabled
    assert waiting.error_code == "endpoint_disabled"

    act(browser, "test_chosen", row)
    assert WebhookDelivery.objects.filter(event="test", owner=operator).count() == 1
    assert len(sent_tasks("deliver")) == 1

    browser.post(page_of(row, "delete"), {"post": "yes"})
    assert not WebhookEndpoint.objects.exists()


def test_url_that_may_not_be_used_is_refused_in_the_form(browser: Client) -> None:
    for url in ("http://127.0.0.1/", "ftp://hooks.example/", "nonsense"):
        page = browser.post(ADD, {"url": url, "events": ["test"], "enabled": "on"})
        assert page.status_code == 200
        assert "error" in page.content.decode()
    assert not WebhookEndpoint.objects.exists()


def test_one_endpoint_too_many_is_refused_in_words(browser: Client, operator: User) -> None:
    for _ in range(MOST_ENDPOINTS):
        make_endpoint(operator)
    values = {"url": "https://hooks.example/a", "events": ["test"], "enabled": "on"}
    page = browser.post(ADD, values, follow=True).content.decode()
    assert "the limit for each user" in page
    assert WebhookEndpoint.objects.count() == MOST_ENDPOINTS


def test_secret_is_shown_to_its_user_alone_and_rotated(
    browser: Client, boss: Client, operator: User
) -> None:
    assert browser.get(reverse("admin:synth_webhooksecret_changelist")).status_code == 200
    row = WebhookSecret.objects.get(user=operator)
    page = page_of(row)
    assert row.secret in read(browser, page)
    assert boss.get(page).status_code == 302

    answer = browser.post(page_of(row, "rotate_this"), SUBMITTED)
    assert answer.headers["HX-Redirect"] == page

    new = secret_of(operator)
    assert (new.secret != row.secret, new.previous) == (True, row.secret)
    assert new.secret in read(browser, page)
