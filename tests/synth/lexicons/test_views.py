"""Lexicons over REST: what is kept, what is refused and how."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from synth.models import Lexicon, LexiconEntry
from tests.factories import make_lexicon, make_voice

pytestmark = pytest.mark.django_db(transaction=True)
URL = "/api/v1/lexicons"


@pytest.fixture
def lexicon(operator: User) -> Lexicon:
    """A lexicon of the operator with two entries."""
    return make_lexicon(operator, ("data", "dayta"), ("Nguyen", "Win"), name="House")


def entries_of(lexicon: Lexicon) -> list[tuple[str, str]]:
    return list(lexicon.entries.values_list("find", "say"))


def test_lexicon_is_made_changed_and_deleted(api: APIClient) -> None:
    made = api.post(URL, {"name": "House", "scope": "global", "language": "EN-us"})

    assert made.status_code == 201
    shown = made.json()
    assert made["Location"] == f"{URL}/{shown['id']}"
    assert (shown["language"], shown["entries_total"], shown["shared"]) == ("en-US", 0, False)
    changed = api.patch(made["Location"], {"name": "Home", "enabled": False, "language": ""})
    assert (changed.json()["name"], changed.json()["enabled"]) == ("Home", False)
    assert changed.json()["scope"] == "global"  # what is not given stays
    assert api.get(URL).json()["results"] == [changed.json()]
    assert api.delete(made["Location"]).status_code == 204
    assert api.get(made["Location"]).status_code == 404


def test_poll_of_an_unchanged_lexicon_has_no_body(api: APIClient, lexicon: Lexicon) -> None:
    path = f"{URL}/{lexicon.pk}"
    tag = api.get(path)["ETag"]

    assert api.get(path, headers={"If-None-Match": tag}).status_code == 304
    api.post(f"{path}/entries", {"find": "GIF", "say": "jif"})
    assert api.get(path, headers={"If-None-Match": tag}).status_code == 200


def test_lexicon_of_a_voice_names_it(api: APIClient, operator: User) -> None:
    voice = make_voice("Ada", owner=operator)

    made = api.post(URL, {"name": "Adas", "scope": "voice", "voice": "ada"})
    without = api.post(URL, {"name": "Nobodys", "scope": "voice"})
    unknown = api.post(URL, {"name": "Nobodys", "scope": "voice", "voice": "Bob"})
    unfit = api.post(URL, {"name": "Nobodys", "scope": "global", "voice": "Ada"})

    assert made.json()["voice"] == {"id": str(voice.pk), "name": "Ada"}
    assert (without.status_code, without.json()["code"]) == (400, "voice_required")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "voice_not_found")
    assert (unfit.status_code, unfit.json()["code"]) == (400, "voice_unfit")
    assert api.patch(made["Location"], {"scope": "named"}).json()["voice"] is None


def test_name_is_taken_in_any_case(api: APIClient, lexicon: Lexicon) -> None:
    answer = api.post(URL, {"name": "hOUSE"})

    assert (answer.status_code, answer.json()["code"]) == (409, "lexicon_name_taken")


def test_entries_are_added_listed_in_order_changed_and_deleted(
    api: APIClient, lexicon: Lexicon
) -> None:
    path = f"{URL}/{lexicon.pk}/entries"

    added = api.post(path, {"find": "GIF", "say": "jif", "case_sensitive": True})
    changed = api.patch(added["Location"], {"say": "gif with a hard G"})
    moved = api.patch(added["Location"], {"index": 0})

    assert (added.status_code, added.json()["index"], added.json()["kind"]) == (201, 2, "word")
    assert (changed.json()["say"], changed.json()["case_sensitive"]) == ("gif with a hard G", True)
    assert moved.json()["index"] == 0
    first = api.get(f"{path}?limit=2").json()
    assert [row["find"] for row in first["results"]] == ["data", "GIF"]
    assert [row["find"] for row in api.get(first["next"]).json()["results"]] == ["Nguyen"]
    assert api.delete(added["Location"]).status_code == 204
    assert api.delete(added["Location"]).status_code == 404
    assert entries_of(lexicon) == [("data", "dayta"), ("Nguyen", "Win")]


REFUSED = [
    ({"find": "(a+)+$", "say": "x", "kind": "regex"}, "pattern_too_slow"),
    ({"find": "(a|aa)+$", "say": "x", "kind": "regex"}, "pattern_too_slow"),
    ({"find": "(x+x+)+y", "say": "x", "kind": "regex"}, "pattern_too_slow"),
    ({"find": "(", "say": "x", "kind": "regex"}, "pattern_invalid"),
    ({"find": "(?R)a", "say": "x", "kind": "regex"}, "pattern_invalid"),
    ({"find": "a*", "say": "x", "kind": "regex"}, "pattern_empty"),
    ({"find": r"\b", "say": "x", "kind": "regex"}, "pattern_empty"),
    ({"find": "(a)", "say": r"\2", "kind": "regex"}, "say_invalid"),
    ({"find": "(a)", "say": r"\g<n>", "kind": "regex"}, "say_invalid"),
    ({"find": "a", "say": "<|speaker:1|>"}, "say_invalid"),
    ({"find": "  ", "say": "x"}, "find_empty"),
    ({"find": "a\nb", "say": "x"}, "text_invalid"),
    ({"find": "a" * 501, "say": "x"}, "max_length"),
    ({"find": "a", "say": "x", "language": "not a tag"}, "language_invalid"),
    ({"find": "a", "say": "x", "kind": "glob"}, "invalid_choice"),
    ({"find": "a"}, "required"),
    ({"find": "a", "say": "x", "colour": "red"}, "unknown_field"),
]


@pytest.mark.parametrize(("body", "code"), REFUSED)
def test_entry_that_cannot_be_used_is_refused_and_says_which_field(
    body: dict[str, Any], code: str, api: APIClient, lexicon: Lexicon
) -> None:
    answer = api.post(f"{URL}/{lexicon.pk}/entries", body)

    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert answer.json()["errors"][0]["attr"] in (*body, "say")
    assert LexiconEntry.objects.count() == 2


def test_invalid_pattern_names_its_place(api: APIClient, lexicon: Lexicon) -> None:
    answer = api.post(f"{URL}/{lexicon.pk}/entries", {"find": "ab[c", "say": "x", "kind": "regex"})

    assert "at character 5" in answer.json()["detail"]


def test_pattern_is_checked_again_when_a_word_becomes_one(api: APIClient, lexicon: Lexicon) -> None:
    entry = lexicon.entries.create(find="(a+)+$", say="x", kind="word", index=9)

    answer = api.patch(f"{URL}/{lexicon.pk}/entries/{entry.pk}", {"kind": "regex"})

    assert (answer.status_code, answer.json()["code"]) == (400, "pattern_too_slow")
    entry.refresh_from_db()
    assert entry.kind == "word"


WRONG: list[Any] = [None, 1, 1.5, True, [], {}, "x" * 3000, "\0", "\ud800", [None], {"a": 1}]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("", {"name": 0, "scope": 0, "voice": 0, "language": 0, "enabled": 0, "shared": 0}),
        ("/entries", dict.fromkeys(
            ("find", "say", "kind", "case_sensitive", "language", "enabled", "index"), 0)),
        ("/preview", {"text": 0, "language": 0, "lexicon": 0, "name": 0}),
    ],
)  # fmt: skip
def test_wrong_types_in_any_field_are_a_400(
    wrong: Any, path: str, body: dict[str, Any], api: APIClient, lexicon: Lexicon
) -> None:
    goods: dict[str, dict[str, Any]] = {
        "": {"name": "New"},
        "/entries": {"find": "a", "say": "b"},
        "/preview": {"text": "Hello.", "lexicon": []},
    }
    good = goods[path]
    url = URL + (f"/{lexicon.pk}/entries" if path == "/entries" else path)

    for name in body:
        body_of_it = json.dumps(good | {name: wrong})  # the client's own writer refuses surrogates
        answer = api.post(url, body_of_it, content_type="application/json")

        assert answer.status_code < 500, name
        if answer.status_code < 300:  # a value that this field takes
            assert wrong is None or type(wrong) in (bool, int, str, list), name
        else:
            assert answer["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("body", [[], "x", 1, None])
def test_body_that_is_no_object_is_a_400(body: Any, api: APIClient, lexicon: Lexicon) -> None:
    for path in (URL, f"{URL}/{lexicon.pk}/entries", f"{URL}/preview", "/api/v1/preview"):
        assert api.post(path, body, format="json").status_code == 400


def test_lexicon_takes_no_more_entries_than_allowed(
    api: APIClient, lexicon: Lexicon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synth.lexicons.store.MAX_LEXICON_ENTRIES", 3)
    path = f"{URL}/{lexicon.pk}/entries"

    assert api.post(path, {"find": "a", "say": "b"}).status_code == 201
    answer = api.post(path, {"find": "b", "say": "c"})

    assert (answer.status_code, answer.json()["code"]) == (409, "too_many_entries")


def test_number_of_an_entry_that_no_database_holds_is_a_404(
    api: APIClient, lexicon: Lexicon
) -> None:
    answer = api.patch(f"{URL}/{lexicon.pk}/entries/{10**30}", {"say": "x"})

    assert (answer.status_code, answer.json()["code"]) == (404, "entry_not_found")
