"""Voices, models, addresses that are none: in OpenAI's form, with our keys."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from pytest_django import Settings
from rest_framework.test import APIClient

from tests.answers import refusal_of
from tests.factories import make_user, make_voice
from tests.voices.clips import clip_bytes
from voices.models import Voice

pytestmark = pytest.mark.django_db(transaction=True)

VOICES = "/v1/audio/voices"
METHODS = ("get", "post", "put", "delete")


def create(api: APIClient, *, without: str = "", **fields: Any) -> Any:
    """Make a voice by a form."""
    values: dict[str, Any] = {
        "name": "Ada",
        "audio_sample": SimpleUploadedFile("clip.wav", clip_bytes(), "audio/wav"),
        "consent": "She agreed.",
        "transcript": "What she says.",
    }
    values |= fields
    values.pop(without, None)
    return api.post(VOICES, values, format="multipart")


def test_voices_are_listed_in_all_forms_without_archived_ones(api: APIClient) -> None:
    bob, ada = make_voice("Bob"), make_voice("Ada")
    Voice.objects.filter(pk=make_voice("Old").pk).update(archived=True)

    listed = api.get(VOICES).json()

    assert listed["object"] == "list"
    assert [(item["id"], item["name"]) for item in listed["data"]] == [
        (str(voice.pk), voice.name) for voice in (ada, bob)
    ]
    shown = ("id", "name", "value", "label")
    assert listed["voices"] == [dict.fromkeys(shown, name) for name in ("Ada", "Bob")]
    assert api.get(f"{VOICES}/chatterbox").json() == listed  # as TTS WebUI's clients ask
    assert {item["status"] for item in listed["data"]} == {"ready"}


def test_voice_is_made_with_all_that_was_sent(api: APIClient) -> None:
    answer = create(api, language="en-GB", type="audio_sample")

    voice = Voice.objects.get()
    shown = answer.json()
    assert answer.status_code == 200
    assert shown["id"] == str(voice.pk)
    assert (shown["object"], shown["status"]) == ("audio.voice", "pending")
    assert (voice.name, voice.consent_statement, voice.language) == ("Ada", "She agreed.", "en-GB")
    assert voice.consent_by == "operator"
    version = voice.current_version
    assert version is not None and version.clips.get().transcript == "What she says."
    assert api.get(f"{VOICES}/{voice.pk}").json() == shown


def test_bad_form_is_refused_with_its_field(api: APIClient) -> None:
    needed = ("transcript", "name", "consent", "audio_sample")
    wrong: list[tuple[str, str, dict[str, Any]]] = [
        *((name, "required", {"without": name}) for name in needed),
        ("transcript", "blank", {"transcript": ""}),
        ("transcript", "transcript_required", {"transcript": " \n"}),
        ("consent", "blank", {"consent": " "}),
        ("name", "max_length", {"name": "x" * 101}),
        ("name", "repeated", {"name": ["Ada", "Bob"]}),
        ("language", "invalid", {"language": "??"}),
        ("type", "invalid_choice", {"type": "prompt"}),
        ("prompt", "unknown_field", {"prompt": "A warm voice."}),
        ("audio_sample", "invalid", {"audio_sample": "text"}),
    ]
    for param, code, changes in wrong:
        answer = create(api, **changes)
        error = answer.json()["error"]
        found = (answer.status_code, error["code"], error["param"])
        assert found == (400, code, param), changes
        assert answer.headers["x-should-retry"] == "false", changes
    assert not Voice.objects.exists()
    error = create(api, audio_sample=SimpleUploadedFile("a.wav", b"no audio")).json()["error"]
    assert error["param"] == "audio_sample"
    assert "needs the transcript" in create(api, without="transcript").json()["error"]["message"]


def test_name_that_is_taken_sample_too_large_and_json_have_statuses_of_their_own(
    api: APIClient, operator: User, settings: Settings
) -> None:
    make_voice("ADA", owner=operator)
    assert refusal_of(create(api)) == (409, "voice_name_taken")
    settings.MAX_CLIP_BYTES = 100
    assert refusal_of(create(api)) == (413, "clip_too_large")
    answer = api.post(VOICES, {"name": "Ada", "prompt": "Warm."}, format="json")
    assert refusal_of(answer) == (415, "unsupported_media_type")


def test_deleted_voice_is_gone_and_one_that_is_not_there_a_404(
    api: APIClient, operator: User, settings: Settings
) -> None:
    voice = make_voice("Ada", owner=operator)

    answer = api.delete(f"{VOICES}/{voice.pk}")

    assert answer.json() == {"id": str(voice.pk), "object": "audio.voice", "deleted": True}
    assert api.get(VOICES).json()["voices"] == []
    settings.OPENAI_STRICT = True
    for voice_id in (voice.pk, "Ada", "3f662d3d-42ae-436f-af86-d2be87c536c3", "a" * 300):
        for ask in (api.get, api.delete):
            answer = ask(f"{VOICES}/{voice_id}")
            assert refusal_of(answer) == (404, "voice_not_found"), (ask.__name__, voice_id)


def test_lists_need_no_key_where_the_setting_says_so(
    job_services: None, settings: Settings
) -> None:
    make_voice("Ada")
    make_voice("Own", owner=make_user())
    lists = (VOICES, f"{VOICES}/tts-1", "/v1/models", "/v1/audio/models", "/v1/models/tts-1")
    for address in lists:
        assert APIClient().get(address).status_code == 401, address

    settings.OPENAI_PUBLIC_VOICES = True

    clients = (APIClient(), *(APIClient(headers={"api-key": key}) for key in ("", "sk-none")))
    for client, address in itertools.product(clients, lists):
        assert client.get(address).status_code == 200, address
    assert [one["name"] for one in APIClient().get(VOICES).json()["voices"]] == ["Ada"]
    voice = Voice.objects.get(name="Ada")
    assert APIClient().get(f"{VOICES}/{voice.pk}").status_code == 401
    assert create(APIClient()).status_code == 401
    assert APIClient().get("/v1/test").json() == {"status": "ok"}  # in either case


def test_voice_whose_name_another_one_has_is_sent_by_its_id(api: APIClient, operator: User) -> None:
    own, built_in = make_voice("Ada", owner=operator), make_voice("ADA")
    sent = {one["id"] for one in api.get(VOICES).json()["voices"]}
    assert sent == {str(own.pk), str(built_in.pk)}


def test_models_are_the_checkpoint_and_its_other_names(
    api: APIClient, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr("synth.dialects.openai_catalogue.OPENAI_ALIASES", ["tts-1", "Tiny"])

    for address in ("/v1/models", "/v1/audio/models"):
        listed = api.get(address).json()
        assert listed["object"] == "list", address
        assert listed["models"] == [{"id": name, "name": name} for name in ("Tiny", "tts-1")], (
            address
        )
        assert [model["id"] for model in listed["data"]] == ["Tiny", "tts-1"], address
        assert {model["object"] for model in listed["data"]} == {"model"}, address
    assert api.get("/v1/models/tts-1").json()["id"] == "tts-1"
    assert refusal_of(api.get("/v1/models/tts-2")) == (404, "model_not_found")
    assert api.get("/v1/models?limit=3&api-version=1").headers["X-TTS-Ignored"] == "limit"
    settings.OPENAI_STRICT = True
    assert refusal_of(api.get("/v1/models?limit=3")) == (400, "unknown_field")
    assert api.get("/v1/models?api-version=1").status_code == 200
    (settings.CHECKPOINT / "card.json").write_text("{")
    assert refusal_of(api.get("/v1/models")) == (503, "checkpoint_card_invalid")


def test_address_or_method_that_leads_nowhere_is_a_404_or_a_405(api: APIClient) -> None:
    addresses = ("/v1/", "/v1/chat/completions", "/v1/audio/speech/x", "/v1/x/", "/openai/",
                 "/openai/deployments/tts/chat/completions")  # fmt: skip
    for client, method, address in itertools.product((api, APIClient()), METHODS, addresses):
        answer = getattr(client, method)(address)
        has_key = client is api
        assert refusal_of(answer) == (404, "not_found"), (method, address, has_key)
    for method, address in (
        *(("get", "/v1/audio/speech"), ("put", VOICES), ("post", "/v1/models")),
        ("patch", VOICES),
    ):
        answer = getattr(api, method)(address)
        assert refusal_of(answer) == (405, "method_not_allowed"), (method, address)


def test_request_without_a_good_key_is_a_401(job_services: None, operator: User) -> None:
    for header, address in itertools.product(
        (None, "Bearer nonsense", "Bearer", "Basic YTpi"),
        ("/v1/audio/speech", VOICES, "/v1/models"),
    ):
        headers = {"Authorization": header} if header else {}
        answer = APIClient().post(address, {}, format="json", headers=headers)
        found = (answer.status_code, answer.json()["error"]["type"])
        assert found == (401, "authentication_error"), (header, address)
        assert answer.headers["x-should-retry"] == "false", (header, address)
        assert answer.headers["WWW-Authenticate"].startswith("Bearer"), (header, address)
    client = Client()
    client.force_login(operator)  # the session of a browser is no key
    assert client.get("/v1/models").status_code == 401
