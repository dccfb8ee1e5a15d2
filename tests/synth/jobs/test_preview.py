"""Previews, and that jobs speak just what they show."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django import DjangoAssertNumQueries
from rest_framework.test import APIClient

from synth.jobs.planning import Order, Planner
from synth.jobs.submit import segment_seed
from synth.models import RenderJob, Segment
from tests.factories import make_lexicon, make_voice
from ttsweb.refusals import SubmitRejectedError
from voices.models import Voice

pytestmark = pytest.mark.django_db(transaction=True)
URL = "/api/v1/preview"
LEXICON = "/api/v1/lexicons/preview"


@pytest.fixture
def ada(operator: User) -> Voice:
    """A voice of the operator's that speaks English."""
    return make_voice("Ada", owner=operator, language="en")


def preview(api: APIClient, **body: Any) -> Any:
    """Return what the preview of a text in Ada's voice answers."""
    answer = api.post(URL, {"voice": "Ada"} | body, format="json")
    assert answer.status_code == 200, answer.content
    return answer.json()


def spoken(api: APIClient, **body: Any) -> list[str]:
    return [segment["spoken_text"] for segment in preview(api, **body)["segments"]]


def test_preview_shows_segments_changes_and_length_and_keeps_nothing(
    api: APIClient, ada: Voice, operator: User
) -> None:
    make_lexicon(operator, ("data", "dayta"), name="House", scope="global")

    text = "All the data cost $3.50.\n\nNothing else is in here."
    body = preview(api, text=text, normalise=True)

    assert (body["language"], body["warnings"]) == ("en", [])
    first, second = body["segments"]
    said = "All the dayta cost three dollars and fifty cents."
    assert (first["text"], first["spoken_text"]) == ("All the data cost $3.50.", said)
    assert first["changes"] == [
        {"found": "data", "said": "dayta", "by": "House", "start": 8},
        {"found": "$3.50", "said": "three dollars and fifty cents", "by": "normalise", "start": 18},
    ]
    assert first["pause_after_ms"] == 700
    assert (second["changes"], second["pause_after_ms"], second["index"]) == ([], 0, 1)
    assert body["characters"] == len(first["spoken_text"]) + len(second["spoken_text"])
    assert 3 < body["estimated_seconds"] < 12
    assert not RenderJob.objects.exists()


def test_job_has_the_segments_and_seeds_of_its_preview(
    api: APIClient, ada: Voice, operator: User
) -> None:
    make_lexicon(operator, ("data", "dayta"), scope="global")
    make_lexicon(operator, ("Nguyen", "Win"), name="Names")
    order = {
        "text": "The data of Nguyen, who has 21 of them, and of many other people as well.",
        "voice": "Ada",
        "lexicons": ["Names"],
        "lexicon": [{"find": "them", "say": "those"}],
        "normalise": True,
        "pauses": {"phrase": 777},
    }

    shown = api.post(URL, order, format="json").json()["segments"]
    job = api.post("/api/v1/jobs", order | {"seed": 5}, format="json").json()

    rows = Segment.objects.filter(job_id=job["id"]).order_by("index")
    assert len(shown) > 1
    names = ("text", "spoken_text", "pause_after_ms")
    assert [tuple(segment[name] for name in names) for segment in shown] == list(
        rows.values_list(*names)
    )
    assert all(len(row.spoken_text) <= 60 for row in rows)  # the card's limit
    assert [row.seed for row in rows] == [segment_seed(5, row.spoken_text, 0) for row in rows]
    everything = " ".join(row.spoken_text for row in rows)
    assert everything.startswith("The dayta of Win, who has twenty-one of those")
    assert " ".join(row.text for row in rows) == order["text"]


def test_jobs_entries_come_before_named_ones_these_before_the_voices_and_these_before_global_ones(
    api: APIClient, ada: Voice, operator: User
) -> None:
    make_lexicon(None, *[(word, "everybody") for word in "abcde"], name="All", scope="global")
    make_lexicon(operator, *[(word, "global") for word in "abcd"], name="Own", scope="global")
    make_lexicon(operator, *[(w, "voice") for w in "abc"], name="V", scope="voice", voice=ada)
    make_lexicon(operator, *[(word, "named") for word in "ab"], name="Asked")
    entries = [{"find": "a", "say": "job"}]

    (said,) = spoken(api, text="a b c d e f", lexicons=["asked"], lexicon=entries)

    assert said == "job named voice global everybody f"


def test_what_was_said_is_not_replaced_again(api: APIClient, ada: Voice, operator: User) -> None:
    make_lexicon(operator, ("dog", "cat"), ("cat", "dog"), scope="global")
    entries = [{"find": "mouse", "say": "dog 5"}]

    (said,) = spoken(api, text="A dog, a cat, a mouse.", lexicon=entries, normalise=True)

    assert said == "A cat, a dog, a dog 5."


def test_lexicon_of_a_voice_is_for_its_speaker_alone(
    api: APIClient, ada: Voice, operator: User
) -> None:
    bob = make_voice("Bob", owner=operator)
    make_lexicon(operator, ("data", "dahta"), scope="voice", voice=bob)

    text = "<|speaker:0|>All of the data is here.<|speaker:1|>All of the data is there."
    answer = api.post(URL, {"text": text, "voices": {"0": "Ada", "1": "Bob"}}, format="json")

    assert [segment["spoken_text"] for segment in answer.json()["segments"]] == [
        "All of the data is here.",
        "All of the dahta is there.",
    ]


def test_entries_in_another_language_or_switched_off_do_not_apply(
    api: APIClient, ada: Voice, operator: User
) -> None:
    lexicon = make_lexicon(operator, ("data", "dayta"), scope="global")
    lexicon.entries.create(find="Paris", say="Paree", language="fr", index=2)
    lexicon.entries.create(find="London", say="Lundun", language="en", index=3)
    lexicon.entries.create(find="Rome", say="Roma", enabled=False, index=4)
    make_lexicon(operator, ("Oslo", "Ooshloo"), scope="global", language="no")
    make_lexicon(operator, ("Bern", "Baern"), scope="global", enabled=False)
    text = "data of Paris, London, Rome, Oslo and Bern"

    assert spoken(api, text=text) == ["dayta of Paris, Lundun, Rome, Oslo and Bern"]
    assert spoken(api, text=text, language="en-GB") == spoken(api, text=text)
    assert spoken(api, text=text, language="fr") == ["dayta of Paree, London, Rome, Oslo and Bern"]


def test_language_without_rules_and_a_text_without_a_voice_are_warned_of(
    api: APIClient, ada: Voice
) -> None:
    answer = preview(api, text="Se on 5 km.", language="fi", normalise=True)
    assert answer["segments"][0]["spoken_text"] == "Se on 5 km."
    assert "'fi'" in answer["warnings"][0]
    answer = api.post(URL, {"text": "Hello to all of you."}).json()
    assert "voice" in answer["warnings"][0]


@pytest.mark.parametrize(
    ("body", "status", "code", "attr"),
    [
        ({"text": ""}, 400, "text_empty", "text"),
        ({"text": " \n\x01"}, 400, "text_empty", "text"),
        ({"text": "a\0b"}, 400, "text_not_text", "text"),
        ({"text": "..."}, 400, "text_unspeakable", "text"),
        ({"text": "x" * 300_000}, 413, "text_too_long", "text"),
        ({"voice": "Nobody"}, 404, "voice_not_found", "voice"),
        ({"lexicons": ["None such"]}, 404, "lexicon_not_found", "lexicons"),
        ({"lexicons": ["a\0b"]}, 400, "null_characters_not_allowed", "lexicons.0"),
        ({"lexicon": [{"find": "x", "say": "y"}, {"find": "(", "say": "", "kind": "regex"}]},
         400, "pattern_invalid", "lexicon.1.find"),
        ({"lexicon": [{"find": "(a+)+$", "say": "", "kind": "regex"}]},
         400, "pattern_too_slow", "lexicon.0.find"),
        ({"lexicon": [{"find": "hello", "say": ""}]}, 400, "text_unspeakable", "text"),
        ({"lexicons": ["Off"]}, 409, "lexicon_disabled", "lexicons"),
        ({"format": "mp3"}, 400, "unknown_field", "format"),
        ({"text": "<|speaker:7|>Hello."}, 400, "speaker_unknown", "text"),
    ],
)  # fmt: skip
def test_refusals_are_those_of_submitting(
    body: dict[str, Any], status: int, code: str, attr: str, api: APIClient, ada: Voice
) -> None:
    make_lexicon(ada.owner, ("a", "b"), name="Off", enabled=False)
    whole = {"text": "Hello.", "voice": "Ada"} | body

    for url in (URL, "/api/v1/jobs") if "format" not in body else (URL,):
        answer = api.post(url, json.dumps(whole), content_type="application/json")

        assert (answer.status_code, answer.json()["code"]) == (status, code), url
        assert answer.json()["errors"][0]["attr"] == attr, url
    assert not RenderJob.objects.exists()


def keep_slow_pattern(owner: User, monkeypatch: pytest.MonkeyPatch, *, seconds: float) -> str:
    """Keep a pattern past every check; return a text that it takes for ever with."""
    monkeypatch.setattr("synth.lexicons.book.LEXICON_SECONDS", seconds)
    lexicon = make_lexicon(owner, scope="global")
    lexicon.entries.create(find="(a|aa)+$", say="x", kind="regex")
    return "a" * 59 + "!"


def test_pattern_that_was_kept_and_takes_for_ever_ends_in_time_and_is_named(
    api: APIClient, ada: Voice, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_text = keep_slow_pattern(operator, monkeypatch, seconds=0.3)

    answer = api.post("/api/v1/jobs", {"text": slow_text, "voice": "Ada"}, format="json")

    assert (answer.status_code, answer.json()["code"]) == (400, "lexicon_too_slow")
    assert "(a|aa)+$" in answer.json()["detail"]


def test_preview_of_a_lexicon_lists_the_segments_it_changes(api: APIClient, operator: User) -> None:
    make_lexicon(operator, ("here", "there"), scope="global")
    make_lexicon(operator, ("data", "dayta"), name="House")
    text = "Nothing of that sort is in here.\n\nAll of the data is here."

    entries = [{"find": "data", "say": "dayta"}]
    kept = api.post(LEXICON, {"text": text, "name": "House"}).json()
    new = api.post(LEXICON, {"text": text, "lexicon": entries}, format="json").json()

    assert (kept["segments_total"], kept["segments_changed"]) == (2, 1)
    assert kept["segments"][0]["spoken_text"] == "All of the dayta is here."
    assert kept["segments"][0]["changes"][0]["by"] == "House"
    assert new["segments"][0]["spoken_text"] == kept["segments"][0]["spoken_text"]


def test_preview_of_a_lexicon_needs_one(api: APIClient) -> None:
    for body in ({}, {"name": "a", "lexicon": []}):
        answer = api.post(LEXICON, {"text": "Hello."} | body, format="json")
        assert (answer.status_code, answer.json()["code"]) == (400, "lexicon_required"), body


def test_planner_asks_for_lexicons_once_however_many_jobs_it_plans(
    operator: User, ada: Voice, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(3):
        make_lexicon(operator, ("data", f"dayta{number}"), scope="global")
    make_lexicon(operator, ("Nguyen", "Win"), name="Names")
    planner = Planner(operator)
    planner.plan(Order(text="Hello.", voice="Ada", lexicons=("Names",)))

    with django_assert_max_num_queries(0):
        for number in range(200):
            planner.plan(Order(text=f"Data {number} of Nguyen.", voice="Ada", lexicons=("Names",)))


def test_batch_of_items_with_slow_patterns_ends_in_time(
    operator: User, ada: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_text = keep_slow_pattern(operator, monkeypatch, seconds=0.05)
    planner = Planner(operator)
    codes, started = [], time.process_time()

    for _ in range(100):
        with pytest.raises(SubmitRejectedError) as refused:
            planner.plan(Order(text=slow_text, voice="Ada"))
        codes.append(refused.value.code)

    assert set(codes) == {"lexicon_too_slow"}
    assert time.process_time() - started < 5  # each alone may take 0.05 seconds, all of them 0.5
