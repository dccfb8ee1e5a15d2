"""The account pages of the admin open, in the look of the other pages."""

from __future__ import annotations

import re

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from synth.accounts.access import create_key
from tests.factories import logged_in, make_book, make_job, make_lexicon, make_user, make_worker
from ttsweb.refusals import counted

pytestmark = pytest.mark.django_db


@pytest.fixture
def page() -> Client:
    return logged_in(make_user("boss", is_superuser=True))


@pytest.mark.parametrize(
    "path",
    [
        "/admin/", "/admin/auth/user/", "/admin/auth/user/add/", "/admin/auth/group/add/",
        "/admin/synth/apikey/", "/admin/synth/apikey/add/", "/admin/voices/voice/",
        "/admin/voices/voice/add/",
    ],
)  # fmt: skip
def test_a_page_opens_with_our_style(page: Client, path: str) -> None:
    response = page.get(path)
    assert response.status_code == 200
    assert "ttsweb/admin.css" in response.content.decode()


def test_a_user_can_be_added_and_edited(page: Client) -> None:
    password = {"password1": "a long enough one", "password2": "a long enough one"}
    fields = {"username": "clerk", "usable_password": "true", **password}
    response = page.post("/admin/auth/user/add/", fields)
    assert response.status_code == 302
    assert page.get(response["Location"]).status_code == 200


FORM = {"date_joined_0": "2026-01-01", "date_joined_1": "10:00:00"}


def test_nobody_loses_the_own_account_or_its_rights_by_the_own_hand(page: Client) -> None:
    boss = User.objects.get(username="boss")
    address = f"/admin/auth/user/{boss.pk}"

    assert page.post(f"{address}/delete/", {"post": "yes"}).status_code == 403
    chosen = {"action": "delete_selected", "_selected_action": [boss.pk], "post": "yes"}
    page.post("/admin/auth/user/", chosen)
    changed = page.post(f"{address}/change/", {"username": "boss", "email": "b@b.org", **FORM})

    assert changed.status_code == 302
    boss.refresh_from_db()
    assert (boss.is_active, boss.is_staff, boss.is_superuser, boss.email) == (True,) * 3 + (
        "b@b.org",
    )


def test_staff_who_may_change_users_neither_become_superusers_nor_touch_them(page: Client) -> None:
    clerk, boss = make_user("clerk", is_staff=True), User.objects.get(username="boss")
    rights = Permission.objects.filter(codename__in=["change_user", "delete_user", "view_user"])
    clerk.user_permissions.set(rights)
    other, staff = make_user("other"), logged_in(clerk)
    new = {"password1": "a long enough one", "password2": "a long enough one"}

    for path in ("delete/", "password/"):
        asked = staff.post(f"/admin/auth/user/{boss.pk}/{path}", {"post": "yes", **new})
        assert asked.status_code == 403, path
    staff.post(f"/admin/auth/user/{boss.pk}/change/", {"username": "mine", **FORM})
    group = Group.objects.create(name="All")
    more = {"is_active": "on", "is_superuser": "on", "groups": [group.pk]}
    changed = staff.post(f"/admin/auth/user/{other.pk}/change/", {"username": "o", **more, **FORM})

    assert changed.status_code == 302
    other.refresh_from_db()
    assert (other.username, other.is_superuser, other.groups.count()) == ("o", False, 0)
    assert User.objects.filter(username="boss", is_superuser=True).exists()


def test_times_have_their_zone(page: Client) -> None:
    user = make_user("clerk")
    LogEntry.objects.log_actions(user.pk, [user], CHANGE, single_object=True)
    shown = page.get(f"/admin/auth/user/{user.pk}/history/").content.decode()
    assert re.search(r"\d+\xa0\w{3}\xa0\d{4}, \d\d:\d\d\xa0UTC", shown)


def test_deletion_of_a_user_tells_no_rows_without_names(page: Client) -> None:
    user = make_user("clerk")
    user.groups.add(Group.objects.create(name="Readers"))
    create_key(user, "a key")
    shown = page.get(f"/admin/auth/user/{user.pk}/delete/").content.decode()
    assert "clerk" in shown and "a key" in shown
    assert "relationship" not in shown and "object (" not in shown


@pytest.mark.parametrize(
    ("query", "said"),
    [("", "There are no lexicons yet"), ("?q=nothing", "No lexicon matches this search")],
)
def test_a_list_without_rows_says_why(page: Client, query: str, said: str) -> None:
    assert said in page.get(f"/admin/synth/lexicon/{query}").content.decode()


def test_cells_say_ages_figures_books_and_missing_languages_in_words(page: Client) -> None:
    make_worker("gone", seconds_ago=3 * 3600 + 60)
    make_worker("gpu", figures={"slots_in_use": 3, "memory_bytes": 1024**3})
    make_book(title="Two Tales", sample_job=make_job(text=""))
    spoken = make_job(segments=0, status="running", segments_total=4, segments_done=3)
    make_book(job=spoken, figures={"expected_seconds": 720.0})
    make_lexicon(None, name="Of none")
    make_lexicon(None, name="Of English", language="en")
    for path, said in (
        ("/admin/", "<title> Overview"),
        ("/admin/", "3.0 h ago"),
        ("/admin/synth/workerstatus/gpu/change/", "memory 1.0\xa0GB · slots in use 3"),
        ("/admin/synth/renderjob/", "Sample of Two Tales"),
        ("/admin/synth/lexicon/", "not set"),
        ("/admin/", "3 min <small>left to render</small>"),
    ):
        shown = re.sub(r"[ \n]+", " ", page.get(path).content.decode())
        assert said in shown, path


@pytest.mark.parametrize(
    ("number", "nouns", "written"),
    [
        (0, ("clip",), "0 clips"), (1, ("clip",), "1 clip"), (2, ("clip",), "2 clips"),
        (1, ("entry", "entries"), "1 entry"), (40, ("entry", "entries"), "40 entries"),
    ],
)  # fmt: skip
def test_one_of_it_is_singular(number: int, nouns: tuple[str, ...], written: str) -> None:
    assert counted(number, *nouns) == written
