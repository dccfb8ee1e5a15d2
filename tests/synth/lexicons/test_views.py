"""Lexicons over REST: what is kept, what is refused and how."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from synth.models import Lexicon, LexiconEntry
from tests.answers import refusal_of
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
    assert made.json()["voice"] == {"id": str(voice.pk), "name": "Ada"}
    for fields, expected in (
        ({"scope": "voice"}, (400, "voice_required")),
        ({"scope": "voice", "voice": "Bob"}, (404, "voice_not_found")),
        ({"scope": "global", "voice": "Ada"}, (400, "voice_unfit")),
        ({"name": "aDAS", "scope": "global"}, (409, "lexicon_name_taken")),  # in any case
    ):
        assert refusal_of(api.post(URL, {"name": "Nobodys"} | fields)) == expected, fields
    assert api.patch(made["Location"], {"scope": "named"}).json()["voice"] is None


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


def test_entry_that_cannot_be_used_is_refused_and_says_which_field_and_where(
    api: APIClient, lexicon: Lexicon
) -> None:
    path = f"{URL}/{lexicon.pk}/entries"
    for body, code in REFUSED:
        answer = api.post(path, body)
        assert refusal_of(answer) == (400, code), body
        assert answer.json()["errors"][0]["attr"] in (*body, "say"), body
    answer = api.post(path, {"find": "ab[c", "say": "x", "kind": "regex"})
    assert "at character 5" in answer.json()["detail"]
    assert LexiconEntry.objects.count() == 2


def test_pattern_is_checked_again_when_a_word_becomes_one(api: APIClient, lexicon: Lexicon) -> None:
    entry = lexicon.entries.create(find="(a+)+$", say="x", kind="word", index=9)

    answer = api.patch(f"{URL}/{lexicon.pk}/entries/{entry.pk}", {"kind": "regex"})

    assert refusal_of(answer) == (400, "pattern_too_slow")
    entry.refresh_from_db()
    assert entry.kind == "word"


WRONG: list[Any] = [None, 1, 1.5, True, [], {}, "x" * 3000, "\0", "\ud800", [None], {"a": 1}]


GOOD: dict[str, dict[str, Any]] = {
    "": {"name": "New"},
    "/entries": {"find": "a", "say": "b"},
    "/preview": {"text": "Hello.", "lexicon": []},
}


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("", ("name", "scope", "voice", "language", "enabled", "shared")),
        ("/entries", ("find", "say", "kind", "case_sensitive", "language", "enabled", "index")),
        ("/preview", ("text", "language", "lexicon", "name")),
    ],
)
def test_wrong_types_in_any_field_are_a_400(
    path: str, fields: tuple[str, ...], api: APIClient, lexicon: Lexicon
) -> None:
    url = URL + (f"/{lexicon.pk}/entries" if path == "/entries" else path)
    for name, wrong in itertools.product(fields, WRONG):
        body = json.dumps(GOOD[path] | {name: wrong})  # the client's own writer refuses surrogates
        answer = api.post(url, body, content_type="application/json")

        assert answer.status_code < 500, (name, wrong)
        if answer.status_code < 300:  # a value that this field takes
            assert wrong is None or type(wrong) in (bool, int, str, list), (name, wrong)
            Lexicon.objects.filter(name="New").delete()
        else:
            assert answer["Content-Type"] == "application/problem+json"


def test_body_that_is_no_object_is_a_400(api: APIClient, lexicon: Lexicon) -> None:
    paths = (URL, f"{URL}/{lexicon.pk}/entries", f"{URL}/preview", "/api/v1/preview")
    bodies: list[Any] = [[], "x", 1, None]
    for path, body in itertools.product(paths, bodies):
        assert api.post(path, body, format="json").status_code == 400, (path, body)


def test_lexicon_takes_no_more_entries_than_allowed(
    api: APIClient, lexicon: Lexicon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synth.lexicons.store.MAX_LEXICON_ENTRIES", 3)
    path = f"{URL}/{lexicon.pk}/entries"

    assert api.post(path, {"find": "a", "say": "b"}).status_code == 201
    assert refusal_of(api.post(path, {"find": "b", "say": "c"})) == (409, "too_many_entries")
    # the number of an entry that no database holds
    assert refusal_of(api.patch(f"{path}/{10**30}", {"say": "x"})) == (404, "entry_not_found")
