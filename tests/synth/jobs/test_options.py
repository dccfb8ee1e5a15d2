"""Options of a job: what each takes, what it refuses, and that answers show it again."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone
from pytest_django import Settings
from rest_framework.test import APIClient

from synth.models import RenderJob
from tests.answers import refusal_of
from tests.factories import make_lexicon, make_voice
from voices.models import Voice

pytestmark = pytest.mark.django_db(transaction=True)

URL = "/api/v1/jobs"
TEXT = "The first sentence of this text. The second sentence of it."


@pytest.fixture
def ada(job_services: None) -> Voice:
    return make_voice("Ada", language="en")


def post(api: APIClient, form: bool = False, **fields: Any) -> Any:
    """Post a job in JSON, or as a form whose objects and lists are JSON."""
    values: dict[str, Any] = {"text": TEXT} | fields
    if form:
        values = {
            name: value
            if isinstance(value, (str, SimpleUploadedFile))
            else json.dumps(value, ensure_ascii=False)
            for name, value in values.items()
        }
    return api.post(URL, values, format="multipart" if form else "json")


OPTIONS: dict[str, Any] = {
    "language": "pt-BR",
    "format": "opus",
    "sample_rate": 16000,
    "bit_rate": 24_000,
    "loudness": -19.5,
    "pauses": {"sentence": 10, "scene": 0},
    "max_retakes": 0,
    "retention": 3600,
    "webhook": "https://example.org/hook?a=1",
    "live": True,
    "seed": 3,
}


@pytest.mark.parametrize("form", [False, True])
def test_options_are_kept_and_shown_as_they_were_given(
    api: APIClient, ada: Voice, form: bool
) -> None:
    response = post(api, form, voice="Ada", **OPTIONS)

    shown = response.json()
    assert response.status_code == 202, shown
    assert {name: shown[name] for name in OPTIONS} == OPTIONS
    listed = api.get(URL).json()["results"][0]
    assert {name: listed[name] for name in OPTIONS} == OPTIONS
    job = RenderJob.objects.get()
    assert (job.sample_rate, job.bit_rate, job.retention_seconds) == (16000, 24_000, 3600)
    assert job.live_requested_at is not None
    assert [segment.pause_after_ms for segment in job.segments.all()] == [10, 0]


@pytest.mark.parametrize("form", [False, True])
def test_seconds_from_now_forever_and_entries_are_shown_whole(
    api: APIClient, ada: Voice, form: bool
) -> None:
    before, entry = timezone.now(), {"find": "sentence", "say": "phrase"}
    entries = [entry, entry | {"language": "de"}]

    shown = post(api, form, voice="Ada", deadline=90.5, retention="forever", lexicon=entries).json()

    job = RenderJob.objects.get()
    waits = dt.datetime.fromisoformat(shown["deadline"]) - before
    assert 90.5 <= waits.total_seconds() < 100
    assert (shown["retention"], job.retention_seconds) == ("forever", 0)
    whole = entry | {"kind": "word", "case_sensitive": False, "language": ""}
    assert shown["lexicon"] == job.lexicon == [whole, whole | {"language": "de"}]


def test_job_without_options_shows_that_it_has_none(api: APIClient, ada: Voice) -> None:
    shown = post(api, voice="Ada").json()

    assert {name: shown[name] for name in OPTIONS} == dict.fromkeys(OPTIONS) | {
        "language": "en", "format": "wav", "pauses": {}, "webhook": "", "live": False, "seed": 0,
    }  # fmt: skip
    assert shown["history"] == 0
    assert (shown["deadline"], shown["lexicons"], shown["lexicon"]) == (None, [], [])


def test_history_is_what_the_card_allows_and_none_unless_asked_for(
    api: APIClient, ada: Voice, settings: Settings
) -> None:
    path = settings.CHECKPOINT / "card.json"
    refused = post(api, voice="Ada", history=1)
    assert refusal_of(refused) == (400, "history_not_supported")
    assert refused.json()["errors"][0]["attr"] == "history"
    assert "at most 0" in refused.json()["detail"]
    assert post(api, voice="Ada", history=0).json()["history"] == 0

    path.write_text(json.dumps(json.loads(path.read_text()) | {"history": 1}))

    assert post(api, voice="Ada").json()["history"] == 0
    assert refusal_of(post(api, voice="Ada", history=2)) == (400, "history_not_supported")
    shown = post(api, voice="Ada", history=1).json()
    assert shown["history"] == 1
    listed = api.get(f"{URL}/{shown['id']}/segments").json()["results"]
    told = [(one["history"], one["history_expected"], one["followers"]) for one in listed]
    assert told == [(None, 0, 1), (None, 1, 0)]


WRONG: dict[str, list[object]] = {
    "language": [5, "", "english", "e", "en_US", "en-", "en\0", ["en"], "en-" + "abcdef-" * 6 + "x",
                 None],
    "sample_rate": [44_101, 7999, 96_000, "16000", True, 16000.0, [16000]],
    "bit_rate": [128, 0, "128k", {}],
    "loudness": [-37, -5.9, "-16", [-16], False],
    "pauses": [[], "0", 5, {"sentence": -1}, {"sentence": 10_001}, {"sentence": "5"},
               {"breath": 5}, {"sentence": True}, {"sentence": None}, {"": 1},
               {"sentence": {"ms": 1}}, {"sentence": 1.5}],
    "normalise": ["true", 1, "yes", None],
    "lexicons": ["one", {"0": "x"}, [5], [None], ["x" * 101], ["a\0"], ["x"] * 51],
    "lexicon": [{}, "x", [5], [{"find": "a"}], [{"find": 5, "say": "b"}],
                [{"find": "a\0", "say": "b"}], [{"find": "a", "say": "b", "kind": "glob"}],
                [{"find": "a", "say": "b", "case_sensitive": 1}],
                [{"find": "a", "say": "b", "language": "english"}],
                [{"find": "a", "say": "b", "else": 1}], [{"find": "a", "say": "b"}] * 501],
    "max_retakes": [-1, 9, "1", 1.0],
    "history": [-1, 3, "1", 1.0, True],
    "deadline": ["tomorrow", "2026-01-31", "2036-01-31T12:00:00", 0, -5, True, "3600", 315_360_001,
                 "9999-12-31T23:59:59-12:00", [], "0001-01-01T00:00:00+12:00",
                 "2020-01-01T00:00:00Z", "", {}, None, "\0"],
    "retention": [59, 315_360_001, "3600", "", "for ever", 60.5, True, [], 0, {}],
    "webhook": ["", 5, "example.org/hook", "ftp://example.org/", "https://" + "x" * 2000,
                "http://127.0.0.1/hook", "http://[::1]/", "https://example.org/\0", ["x"],
                "file:///etc/passwd"],
    "live": ["true", 1, None, []],
}  # fmt: skip


@pytest.mark.parametrize("field", WRONG)
def test_wrong_value_of_an_option_is_a_400_that_names_it(
    api: APIClient, ada: Voice, field: str
) -> None:
    for value in WRONG[field]:
        response = api.post(URL, {"text": TEXT, "voice": "Ada", field: value}, format="json")
        problem = response.json()
        assert response.status_code == 400, (value, problem)
        assert problem["errors"][0]["attr"].split(".")[0] == field, value
    assert not RenderJob.objects.exists()


def test_wrong_value_of_an_option_in_a_form_is_a_400(api: APIClient, job_services: None) -> None:
    for field, value in (
        ("pauses", "{"), ("pauses", "[" * 100_000), ("pauses", "[]"),
        ("pauses", '{"word": NaN}'), ("pauses", '{"word": ' + "9" * 5000 + "}"),
        ("voices", "Ada"), ("voices", "[]"), ("voices", '{"0": 5}'), ("lexicons", "[Names"),
        ("lexicon", "{}"), ("references", '{"0": "x"}'),
        ("normalise", "yes"), ("normalise", "1"), ("live", "True"),
        ("sample_rate", "16000.0"), ("deadline", "soon"), ("retention", "1e5"),
    ):  # fmt: skip
        response = api.post(URL, {"text": TEXT, field: value}, format="multipart")
        assert response.status_code == 400, (field, value)
        assert response.json()["errors"][0]["attr"].split(".")[0] == field, value


def test_empty_field_of_a_form_is_one_that_was_left_out(api: APIClient, ada: Voice) -> None:
    names = [name for name in OPTIONS if name != "format"]

    response = api.post(
        URL, {"text": TEXT, "voice": "Ada"} | dict.fromkeys(names, ""), format="multipart"
    )

    assert response.status_code == 202, response.json()
    assert (response.json()["pauses"], response.json()["sample_rate"]) == ({}, None)


@pytest.mark.parametrize("spelled", ["one field of JSON", "a field each"])
def test_list_in_a_form_is_taken_whole(api: APIClient, ada: Voice, spelled: str) -> None:
    names = [make_lexicon(name=name).name for name in ("First", "Second")]
    lexicons = json.dumps(names) if spelled == "one field of JSON" else names

    form = {"text": TEXT, "voice": "Ada", "lexicons": lexicons}
    response = api.post(URL, form, format="multipart")

    assert response.status_code == 202, response.json()
    assert len(response.json()["lexicons"]) == 2


@pytest.mark.parametrize(
    "body",
    [
        '"language": "X"', '"format": "X"', '"pauses": {"X": 1}', '"lexicons": ["X"]',
        '"lexicon": [{"find": "X", "say": "b"}]', '"lexicon": [{"find": "a", "say": "X"}]',
        '"lexicon": [{"find": "a", "say": "b", "kind": "X"}]', '"lexicon": [{"X": "a"}]',
        '"deadline": "X"', '"retention": "X"', '"webhook": "https://example.org/X"',
        '"webhook": "https://X.example.org/"', '"priority": "X"', '"voices": {"X": "Ada"}',
        '"voices": {"0": "X"}', '"references": {"1": {"audio": "X", "text": "a"}}',
        '"references": {"1": {"audio": "http://example.org/X", "text": "a"}}',
        '"references": {"1": {"audio": "http://X.example.org/", "text": "a"}}',
        '"references": {"1": {"audio": "data:audio/wav;base64,X", "text": "a"}}',
        '"references": {"1": {"audio": "data:audio/wav;base64,AAAA", "text": "X"}}',
        '"references": {"X": {"audio": "data:audio/wav;base64,AAAA", "text": "a"}}',
    ],
)  # fmt: skip
def test_scraps_of_characters_are_refused_and_no_server_error(
    api: APIClient, ada: Voice, settings: Settings, body: str
) -> None:
    settings.URL_REFERENCES = True
    voice = "" if '"voices"' in body else '"voice": "Ada", '
    for scrap in (r"\ud800", r"\u0000", r"x\udfffy"):
        raw = f'{{"text": "Hello.", {voice}{body.replace("X", scrap)}}}'
        response = api.generic("POST", URL, raw, content_type="application/json")
        assert response.status_code == 400, (scrap, response.content)
        assert response.json()["code"], scrap
    assert not RenderJob.objects.exists()


def test_language_is_a_tag_in_its_usual_spelling(api: APIClient, ada: Voice) -> None:
    for given, kept in (
        ("en", "en"), ("PT-br", "pt-BR"), ("zh-hant-tw", "zh-Hant-TW"), ("es-419", "es-419"),
        ("de-1996", "de-1996"), ("sl-rozaj-biske", "sl-rozaj-biske"), ("en-x-us", "en-x-us"),
        ("DE-AT-u-co-phonebk", "de-AT-u-co-phonebk"),
    ):  # fmt: skip
        assert post(api, voice="Ada", language=given).json()["language"] == kept, given


@pytest.mark.parametrize(
    ("form", "taken", "refused"),
    [
        ("wav", [(44_100, None)], [(8000, 64_000)]),
        ("flac", [(48_000, None)], [(None, 64_000)]),
        ("pcm", [], [(None, 64_000)]),
        ("mp3", [(None, 32_000), (None, 320_000), (24_000, 160_000), (8000, 64_000)],
         [(None, 100_000), (None, 31_000), (24_000, 192_000), (8000, 80_000)]),
        ("opus", [(None, 6000), (None, 256_000), (24_000, None)],
         [(None, 256_001), (44_100, None)]),
        ("aac", [(None, 256_000), (8000, 48_000)], [(None, 15_999), (8000, 48_001)]),
    ],
)  # fmt: skip
def test_rates_must_be_ones_that_the_format_can_have(
    api: APIClient, ada: Voice, form: str, taken: list[Any], refused: list[Any]
) -> None:
    def post_rates(sample_rate: int | None, bit_rate: int | None) -> Any:
        rates = {"sample_rate": sample_rate, "bit_rate": bit_rate}
        given: dict[str, Any] = {name: value for name, value in rates.items() if value is not None}
        return post(api, voice="Ada", format=form, **given)

    for rates in taken:
        assert post_rates(*rates).status_code == 202, rates
    for rates in refused:
        response = post_rates(*rates)
        name = "bit_rate" if rates[1] else "sample_rate"
        assert (response.status_code, response.json()["code"]) == (400, f"{name}_unfit"), rates
        assert response.json()["errors"][0]["attr"] == name, rates


def test_what_cannot_be_made_has_a_code_of_its_own(api: APIClient, ada: Voice) -> None:
    response = post(api, voice="Ada", deadline="2020-01-01T00:00:00Z")

    assert refusal_of(response) == (400, "deadline_past")


def test_job_of_any_pace_may_be_heard_while_it_is_rendered(api: APIClient, ada: Voice) -> None:
    shown = post(api, voice="Ada", live=True, speed=1.5, format="mp3").json()

    assert (shown["live"], shown["speed"]) == (True, 1.5)


def test_deadline_is_a_moment_with_a_zone(api: APIClient, ada: Voice) -> None:
    moment = timezone.now().replace(microsecond=0) + dt.timedelta(hours=2)
    there = moment.astimezone(dt.timezone(dt.timedelta(hours=5, minutes=30)))

    shown = post(api, voice="Ada", deadline=there.isoformat()).json()

    assert dt.datetime.fromisoformat(shown["deadline"]) == moment
    assert RenderJob.objects.get().deadline_at == moment


def test_repeated_request_is_answered_although_its_deadline_has_passed(
    api: APIClient, ada: Voice
) -> None:
    moment = (timezone.now() + dt.timedelta(hours=1)).isoformat()
    body = {"text": TEXT, "voice": "Ada", "deadline": moment}
    headers = {"Idempotency-Key": "k"}
    first = api.post(URL, body, format="json", headers=headers).json()
    later = timezone.now() + dt.timedelta(hours=2)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("synth.jobs.planning.timezone.now", lambda: later)
        again = api.post(URL, body, format="json", headers=headers)

    assert (again.status_code, again.json()["id"]) == (200, first["id"])


def test_webhook_to_a_private_address_is_refused_unless_the_operator_allows_it(
    api: APIClient, ada: Voice, settings: Settings
) -> None:
    refused = post(api, voice="Ada", webhook="http://127.0.0.1:9/hook")
    settings.ALLOW_PRIVATE_URLS = True
    taken = post(api, voice="Ada", webhook="http://127.0.0.1:9/hook")

    assert (refused.status_code, refused.json()["code"]) == (400, "url_private_address")
    assert (taken.status_code, taken.json()["webhook"]) == (202, "http://127.0.0.1:9/hook")
