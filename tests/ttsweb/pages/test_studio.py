"""The way from the root to the Studio, and what the Studio shows to whom."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.factories import (
    logged_in,
    make_ended_job,
    make_job,
    make_staff,
    make_user,
    make_voice,
    make_worker,
)

pytestmark = pytest.mark.django_db


def studio_of(user: User) -> str:
    return logged_in(user).get("/", follow=True).content.decode()


def test_the_root_leads_to_the_login_and_then_to_the_studio() -> None:
    client = Client()
    make_user("ada", is_staff=True)

    login = client.get("/", follow=True)
    fields = {"username": "ada", "password": "password", "next": "/studio"}
    page = client.post(login.redirect_chain[-1][0], fields, follow=True)

    assert login.redirect_chain == [("/studio", 302), ("/admin/login/?next=/studio", 302)]
    assert page.redirect_chain[-1][0] == "/studio"
    assert Client().post("/studio").status_code == 302


def test_a_newcomer_is_told_the_first_steps_until_a_voice_and_a_job_are_there() -> None:
    ada = make_staff("add_voice", "view_renderjob")
    make_worker(role="all")

    assert 'href="/admin/voices/voice/add/"' in studio_of(ada)
    voice = make_voice("Mine", owner=ada)
    assert "First steps" in studio_of(ada)
    make_ended_job(ada, voice=voice)

    page = studio_of(ada)
    assert "First steps" not in page
    assert f'<option value="{voice.pk}"' in page


def test_a_user_sees_only_what_permissions_allow() -> None:
    ada, eve = make_staff(), make_user("eve")
    make_voice("Hidden", owner=eve)
    make_voice("Put away", owner=ada, archived=True)
    make_job(owner=eve, text="A secret text.")
    page = studio_of(ada)
    hidden = ("Hidden", "Put away", "A secret text.", "/voices/voice/add/", "/synth/apikey/add/")
    assert [text for text in hidden if text in page] == []


def test_a_voice_that_is_not_ready_is_named_with_its_reason() -> None:
    ada = make_staff("add_voice")
    voice = make_voice("Ada's", owner=ada, ready=False)
    assert "its clips are being encoded" in studio_of(ada)
    voice.versions.update(status="failed", error_message="The clip is silent.")
    assert "The clip is silent." in studio_of(ada)


@pytest.mark.parametrize(
    ("workers", "sentence"),
    [
        ([], "No worker is running"),
        ([{"state": "warming"}], "A worker is starting and loads the model."),
        ([{"state": "failed", "detail": "Out of memory."}], "could not start: Out of memory."),
        ([{"role": "cpu"}], "No GPU worker is running"),
        ([{"role": "gpu"}], "No CPU worker is running"),
        ([{"role": "gpu"}, {"role": "cpu"}], ""),
        ([{}], ""),
    ],
)
def test_what_keeps_jobs_waiting_is_said_with_the_remedy(
    workers: list[dict[str, Any]], sentence: str
) -> None:
    for columns in workers:
        make_worker(columns.get("role", "all"), **({"role": "all"} | columns))
    page = studio_of(make_staff())
    assert ("data-notice" in page) is bool(sentence)
    assert sentence in page


def test_it_begins_with_the_voice_of_the_last_job_and_lists_what_runs_first() -> None:
    ada = make_staff("view_renderjob")
    make_voice("First", owner=ada)
    last = make_voice("Last", owner=ada)
    running = make_job(owner=ada, voice=last, status="running", text="Goes on.")
    ended = make_ended_job(ada, voice=last)

    page = studio_of(ada)

    assert f'value="{last.pk}" data-clip="/api/v1/voices/{last.pk}/audio" selected' in page
    assert page.index("Goes on.") < page.index("tts-ready")
    assert f"/admin/synth/renderjob/{running.pk}/change/" in page
    assert f'data-listen="/api/v1/jobs/{ended.pk}/audio"' in page
    assert page.count("Last</span>") == 2, "who speaks"
    assert f'data-listen="/api/v1/jobs/{running.pk}/audio"' not in page
