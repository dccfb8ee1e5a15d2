"""Every route of lexicons, asked by another user, by anybody of what is everybody's, by nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from rest_framework.test import APIClient

from synth.models import Lexicon, LexiconEntry
from tests.api.test_other_tenant import LEXICONS, Route
from tests.factories import make_lexicon, make_user, make_voice

pytestmark = pytest.mark.django_db(transaction=True)
ABOVE = {"lexicons", "lexicons-preview", "preview"}
BELOW = sorted(route for route in LEXICONS if route[0] not in ABOVE)
WRITING = [route for route in BELOW if route[1] != "GET"]
SECRET = "Unannounced"


def path_of(name: str, lexicon: Lexicon) -> str:
    if name in ABOVE:
        return reverse(name)
    ids: list[Any] = [lexicon.pk]
    return reverse(name, args=[*ids, lexicon.entries.get().pk] if name == "lexicon-entry" else ids)


def rows() -> list[Any]:
    return [list(table.objects.order_by("pk").values()) for table in (Lexicon, LexiconEntry)]


@pytest.fixture
def private(job_services: None) -> Lexicon:
    """A user's lexicon, global, so that it would be heard by whoever it applied to."""
    return make_lexicon(make_user("first"), ("data", SECRET), name="Mine", scope="global")


@pytest.mark.parametrize("route", BELOW)
def test_lexicon_of_another_user_does_not_exist(
    route: Route, private: Lexicon, client_of: Callable[[User], APIClient]
) -> None:
    before = rows()

    answer = client_of(make_user("second")).generic(route[1], path_of(route[0], private))

    assert (answer.status_code, answer.json()["code"]) == (404, "lexicon_not_found")
    assert rows() == before


@pytest.mark.parametrize("route", WRITING)
def test_everybodys_lexicon_is_changed_by_administrators_alone(
    route: Route, job_services: None, client_of: Callable[[User], APIClient]
) -> None:
    lexicon = make_lexicon(None, ("data", "dayta"))
    before = rows()

    answer = client_of(make_user("second")).generic(route[1], path_of(route[0], lexicon))

    assert (answer.status_code, answer.json()["code"]) == (403, "lexicon_shared")
    assert rows() == before


@pytest.mark.parametrize("route", [route for route in BELOW if route[1] == "GET"])
def test_everybodys_lexicon_is_read_by_all(
    route: Route, job_services: None, client_of: Callable[[User], APIClient]
) -> None:
    lexicon = make_lexicon(None, ("data", "dayta"))

    answer = client_of(make_user("second")).get(path_of(route[0], lexicon))

    assert answer.status_code == 200


def test_entry_below_another_lexicon_does_not_exist(
    private: Lexicon, client_of: Callable[[User], APIClient]
) -> None:
    user = make_user("second")
    own, entry = make_lexicon(user), private.entries.get()

    answer = client_of(user).delete(reverse("lexicon-entry", args=[own.pk, entry.pk]))

    assert (answer.status_code, answer.json()["code"]) == (404, "entry_not_found")
    assert private.entries.exists()


def test_list_holds_nothing_of_another_user(
    private: Lexicon, client_of: Callable[[User], APIClient]
) -> None:
    client = client_of(make_user("second"))

    for query in ("", "?name=mine", "?scope=global"):
        assert client.get(reverse("lexicons") + query).json()["results"] == []


@pytest.mark.parametrize("named", ["Mine", "id"])
@pytest.mark.parametrize("is_superuser", [False, True])
def test_lexicon_of_another_user_never_changes_what_is_spoken(
    named: str, is_superuser: bool, private: Lexicon, client_of: Callable[[User], APIClient]
) -> None:
    make_voice("Ada", shared=True)
    client = client_of(make_user("second", is_superuser=is_superuser))
    text = {"text": "All of the data is here.", "voice": "Ada"}
    name = str(private.pk) if named == "id" else named

    plain = client.post(reverse("preview"), text)
    asked = client.post(reverse("preview"), text | {"lexicons": [name]})
    alone = client.post(reverse("lexicons-preview"), {"text": text["text"], "name": name})
    job = client.post(reverse("jobs"), text)

    assert plain.status_code == 200
    assert SECRET not in plain.content.decode()
    assert (asked.status_code, asked.json()["code"]) == (404, "lexicon_not_found")
    assert (alone.status_code, alone.json()["code"]) == (404, "lexicon_not_found")
    assert job.status_code == 202
    segments = client.get(f"/api/v1/jobs/{job.json()['id']}/segments").content.decode()
    assert SECRET not in segments


def test_two_users_may_give_lexicons_the_same_name(
    private: Lexicon, client_of: Callable[[User], APIClient]
) -> None:
    answer = client_of(make_user("second")).post(reverse("lexicons"), {"name": "Mine"})

    assert answer.status_code == 201


def test_only_administrators_make_what_is_everybodys(
    job_services: None, client_of: Callable[[User], APIClient]
) -> None:
    body = {"name": "House", "shared": True}

    refused = client_of(make_user()).post(reverse("lexicons"), body)
    made = client_of(make_user(is_superuser=True)).post(reverse("lexicons"), body)

    assert (refused.status_code, refused.json()["code"]) == (403, "lexicon_shared")
    assert (made.status_code, made.json()["shared"]) == (201, True)


@pytest.mark.parametrize("route", sorted(LEXICONS))
def test_no_lexicon_is_there_without_a_key(route: Route, private: Lexicon) -> None:
    answer = APIClient().generic(route[1], path_of(route[0], private))

    assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")
