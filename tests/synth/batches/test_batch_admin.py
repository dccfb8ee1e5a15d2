"""Batches in the admin: a file is uploaded, its lines are checked, its items are seen and led."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import Permission, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from synth.models import Batch, RenderJob
from tests.factories import logged_in, make_batch, make_job, make_user, stored
from voices.models import Voice

pytestmark = pytest.mark.django_db(transaction=True)
ADD = "admin:synth_textbatch_add"


@pytest.fixture
def boss(job_services: None) -> User:
    """A superuser."""
    return make_user("boss", is_superuser=True)


@pytest.fixture
def browser(boss: User) -> Client:
    """The superuser's browser."""
    return logged_in(boss)


def page(browser: Client, name: str, *arguments: object, query: str = "") -> str:
    answer = browser.get(reverse(f"admin:synth_{name}", args=arguments) + query)
    assert answer.status_code == 200
    return answer.content.decode()


def upload(browser: Client, voice: Voice | None, *lines: str, **fields: str) -> str:
    """Post the form and return the page that follows."""
    file = SimpleUploadedFile("texts.jsonl", "\n".join(lines).encode())
    form = {"file": file, "format": "mp3", "on_error": "reject", "priority": "10"}
    chosen = {"voice": str(voice.pk)} if voice else {}
    answer = browser.post(reverse(ADD), {**form, **chosen, **fields}, follow=True)
    assert answer.status_code == 200
    return answer.content.decode()


def test_file_becomes_a_batch_of_the_user(browser: Client, boss: User, ada: Voice) -> None:
    upload(browser, ada, json.dumps({"custom_id": "a", "text": "One."}), '{"text": "Two."}')
    batch = Batch.objects.get()
    items = list(batch.items.order_by("item_index"))
    assert batch.owner == boss
    named = [(item.custom_id, item.format) for item in items]
    assert named == [("a", "mp3"), ("item-00002", "mp3")]
    shown = page(browser, "textbatch_change", batch.pk)
    assert "2 queued" in shown
    assert reverse("admin:synth_renderjob_change", args=[items[0].pk]) in shown
    assert str(batch.pk)[:8] in page(browser, "textbatch_changelist")


def test_bad_line_is_named_on_the_form_and_nothing_is_queued(browser: Client, ada: Voice) -> None:
    shown = upload(browser, ada, '{"text": "One."}', '{"custom_id": "<b>", "text": ""}')
    assert "line 2 (custom_id &#x27;&lt;b&gt;&#x27;): text: The text is empty" in shown
    assert "1 of 2 items cannot be rendered" in shown
    assert not Batch.objects.exists() and not RenderJob.objects.exists()


def test_bad_line_may_be_skipped(browser: Client, ada: Voice) -> None:
    upload(browser, ada, '{"text": "One."}', "nonsense", on_error="skip")
    states = RenderJob.objects.order_by("item_index")
    assert list(states.values_list("status", flat=True)) == ["queued", "failed"]


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_empty_file_is_refused_in_a_sentence(browser: Client, ada: Voice, content: str) -> None:
    assert "The batch has no items" in upload(browser, ada, content)


def test_batch_is_cancelled_retried_and_deleted(browser: Client, boss: User) -> None:
    batch = make_batch(boss)
    path = reverse("admin:synth_textbatch_changelist")
    chosen = {"_selected_action": str(batch.pk)}

    browser.post(path, {"action": "cancel_chosen", **chosen})
    assert stored(batch, "status") == ("cancelled",)
    browser.post(path, {"action": "retry_chosen", **chosen})
    assert stored(batch, "status") == ("queued",)
    browser.post(path, {"action": "delete_selected", "post": "yes", **chosen})
    assert not Batch.objects.exists() and not RenderJob.objects.exists()


def test_zip_is_linked_once_it_is_there(browser: Client, boss: User) -> None:
    batch = make_batch(boss, RenderJob.Status.SUCCEEDED)
    url = reverse("batch-results", args=[batch.pk])
    assert f'href="{url}"' in page(browser, "textbatch_change", batch.pk)
    assert browser.get(url).status_code == 200


def test_list_of_jobs_leaves_items_out_unless_their_batch_is_asked_for(
    browser: Client, boss: User
) -> None:
    batch, job = make_batch(boss), make_job(owner=boss)
    item = batch.items.get(item_index=0)

    plain = page(browser, "renderjob_changelist")
    of_batch = page(browser, "renderjob_changelist", query=f"?batch={batch.pk}")

    assert str(job.pk) in plain and str(item.pk) not in plain and str(batch.pk) not in plain
    assert str(item.pk) in of_batch and str(job.pk) not in of_batch
    assert page(browser, "renderjob_changelist", query="?batch=nonsense")


def test_staff_see_their_own_batches_with_the_rights_for_jobs(job_services: None) -> None:
    staff, other = make_user("staff", is_staff=True), make_user("other")
    own, foreign = make_batch(staff), make_batch(other)
    client = logged_in(staff)

    assert client.get(reverse("admin:synth_textbatch_changelist")).status_code == 403
    staff.user_permissions.add(Permission.objects.get(codename="view_renderjob"))
    shown = page(client, "textbatch_changelist")
    seen = client.get(reverse("admin:synth_textbatch_change", args=[foreign.pk])).status_code

    assert str(own.pk)[:8] in shown and str(foreign.pk)[:8] not in shown
    assert seen == 302  # to the index, with a message that there is none
