"""The way from the root to the Studio, what the Studio shows to whom, and the public page."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from synth.models import WorkerStatus
from tests.factories import make_ended_job, make_job, make_user, make_voice
from ttsweb.http.csp import ADMIN_POLICY, HEADER


def make_staff(*permissions: str) -> User:
    """Make a user who may log in, with these permissions."""
    user = make_user(is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return user


def studio_of(user: User) -> str:
    """Return the Studio as a user sees it."""
    client = Client()
    client.force_login(user)
    return client.get("/", follow=True).content.decode()


def make_worker(state: str = "ready", role: str = "all", **columns: object) -> None:
    """Make the row of a worker that was heard of just now."""
    seen = {"started_at": timezone.now(), "last_seen_at": timezone.now()}
    WorkerStatus.objects.create(name=f"{role}-1", role=role, state=state, **seen, **columns)


@pytest.mark.django_db
def test_the_root_leads_to_the_login_and_then_to_the_studio() -> None:
    client = Client()
    make_user("ada", is_staff=True)

    login = client.get("/", follow=True)
    page = client.post(
        login.redirect_chain[-1][0],
        {"username": "ada", "password": "password", "next": "/studio"},
        follow=True,
    )

    assert login.redirect_chain == [("/studio", 302), ("/admin/login/?next=/studio", 302)]
    assert page.redirect_chain[-1][0] == "/studio"
    assert page.headers[HEADER] == ADMIN_POLICY
    assert Client().post("/studio").status_code == 302


@pytest.mark.django_db
def test_a_newcomer_is_told_the_first_steps_until_a_voice_and_a_job_are_there() -> None:
    ada = make_staff("add_voice", "view_renderjob")
    make_worker()

    assert 'href="/admin/voices/voice/add/"' in studio_of(ada)
    voice = make_voice("Mine", owner=ada)
    assert "First steps" in studio_of(ada)
    make_ended_job(ada, voice=voice)

    page = studio_of(ada)
    assert "First steps" not in page
    assert f'<option value="{voice.pk}"' in page


@pytest.mark.django_db
def test_a_user_sees_only_what_permissions_allow() -> None:
    ada, eve = make_staff(), make_user("eve")
    make_voice("Hidden", owner=eve)
    make_voice("Put away", owner=ada, archived=True)
    make_job(owner=eve, text="A secret text.")

    page = studio_of(ada)

    assert "Hidden" not in page and "Put away" not in page and "A secret text." not in page
    assert "/admin/voices/voice/add/" not in page
    assert "/admin/synth/apikey/add/" not in page


@pytest.mark.django_db
def test_a_voice_that_is_not_ready_is_named_with_its_reason() -> None:
    ada = make_staff("add_voice")
    voice = make_voice("Ada's", owner=ada, ready=False)

    assert "its clips are being encoded" in studio_of(ada)
    voice.versions.update(status="failed", error_message="The clip is silent.")

    assert "The clip is silent." in studio_of(ada)


@pytest.mark.django_db
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
    workers: list[dict[str, str]], sentence: str
) -> None:
    for columns in workers:
        make_worker(**columns)

    page = studio_of(make_staff())

    assert ("data-notice" in page) is bool(sentence)
    assert sentence in page


@pytest.mark.django_db
def test_it_begins_with_the_voice_of_the_last_job_and_lists_what_runs_first() -> None:
    ada = make_staff("view_renderjob")
    make_voice("First", owner=ada)
    last = make_voice("Last", owner=ada)
    running = make_job(owner=ada, voice=last, status="running", text="Goes on.")
    make_ended_job(ada, voice=last)

    page = studio_of(ada)

    assert f'value="{last.pk}" data-clip="/api/v1/voices/{last.pk}/audio" selected' in page
    assert page.index("Goes on.") < page.index("tts-ready")
    assert f"/admin/synth/renderjob/{running.pk}/change/" in page


def test_the_page_leads_to_the_admin_and_the_schema_without_a_script() -> None:
    text = Client().get("/about").content.decode()

    assert 'href="/admin/"' in text
    assert 'href="/studio"' in text
    assert 'href="/api/v1/schema"' in text
    assert 'href="/api/v1/docs"' in text
    assert "<script" not in text
    assert "style=" not in text


def test_the_page_shows_the_card_as_text(settings: Settings, tmp_path: Path) -> None:
    settings.CHECKPOINT = tmp_path
    (tmp_path / "card.json").write_text(
        '{"name": "<b>Tiny</b>", "licence": "Apache-2.0", "description": "Robotic."}'
    )

    text = Client().get("/about").content.decode()

    assert "&lt;b&gt;Tiny&lt;/b&gt;" in text
    assert "Apache-2.0" in text
    assert "Robotic." in text


@pytest.mark.parametrize("card", ["{", "[]", '{"name": 1}'])
def test_a_card_that_cannot_be_read_is_said_and_not_guessed(
    settings: Settings, tmp_path: Path, card: str
) -> None:
    settings.CHECKPOINT = tmp_path
    (tmp_path / "card.json").write_text(card)

    response = Client().get("/about")

    assert response.status_code == 200
    assert "cannot be read" in response.content.decode()
