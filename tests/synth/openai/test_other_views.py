"""Voices, models, addresses that are none: in OpenAI's form, with our keys."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from pytest_django import Settings
from rest_framework.test import APIClient

from tests.factories import make_voice
from tests.voices.clips import clip_bytes
from voices.models import Voice

pytestmark = pytest.mark.django_db(transaction=True)

VOICES = "/v1/audio/voices"


def clip() -> SimpleUploadedFile:
    """Return a clip as a form has it."""
    return SimpleUploadedFile("clip.wav", clip_bytes(), "audio/wav")


def create(api: APIClient, *, without: str = "", **fields: Any) -> Any:
    """Make a voice by a form."""
    values: dict[str, Any] = {
        "name": "Ada",
        "audio_sample": clip(),
        "consent": "She agreed.",
        "transcript": "What she says.",
    }
    values |= fields
    values.pop(without, None)
    return api.post(VOICES, values, format="multipart")


def test_voices_are_listed_in_both_forms_without_archived_ones(api: APIClient) -> None:
    bob, ada = make_voice("Bob"), make_voice("Ada")
    Voice.objects.filter(pk=make_voice("Old").pk).update(archived=True)

    listed = api.get(VOICES).json()

    names = [{"id": str(voice.pk), "name": voice.name} for voice in (ada, bob)]
    assert listed["object"] == "list"
    assert listed["voices"] == names
    assert [{"id": item["id"], "name": item["name"]} for item in listed["data"]] == names
    assert {item["status"] for item in listed["data"]} == {"ready"}


def test_voice_is_made_with_all_that_was_sent(api: APIClient) -> None:
    answer = create(api, language="en-GB", type="audio_sample")

    voice = Voice.objects.get()
    shown = answer.json()
    assert answer.status_code == 200
    assert (shown["id"], shown["object"], shown["status"]) == (
        str(voice.pk),
        "audio.voice",
        "pending",
    )
    assert (voice.name, voice.consent_statement, voice.language) == ("Ada", "She agreed.", "en-GB")
    assert voice.consent_by == "operator"
    version = voice.current_version
    assert version is not None and version.clips.get().transcript == "What she says."
    assert api.get(f"{VOICES}/{voice.pk}").json() == shown


@pytest.mark.parametrize(
    ("changes", "status", "code", "param"),
    [
        ({"without": "transcript"}, 400, "required", "transcript"),
        ({"without": "name"}, 400, "required", "name"),
        ({"without": "consent"}, 400, "required", "consent"),
        ({"without": "audio_sample"}, 400, "required", "audio_sample"),
        ({"transcript": ""}, 400, "blank", "transcript"),
        ({"transcript": " \n"}, 400, "transcript_required", "transcript"),
        ({"consent": " "}, 400, "blank", "consent"),
        ({"name": "x" * 101}, 400, "max_length", "name"),
        ({"name": ["Ada", "Bob"]}, 400, "repeated", "name"),
        ({"language": "??"}, 400, "invalid", "language"),
        ({"type": "prompt"}, 400, "invalid_choice", "type"),
        ({"prompt": "A warm voice."}, 400, "unknown_field", "prompt"),
        ({"audio_sample": "text"}, 400, "invalid", "audio_sample"),
    ],
)
def test_bad_form_is_refused_with_its_field(
    api: APIClient, changes: dict[str, Any], status: int, code: str, param: str
) -> None:
    answer = create(api, **changes)

    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param)
    assert answer.headers["x-should-retry"] == "false"
    assert not Voice.objects.exists()


def test_bytes_that_are_no_audio_are_refused_as_the_sample(api: APIClient) -> None:
    error = create(api, audio_sample=SimpleUploadedFile("a.wav", b"no audio")).json()["error"]

    assert error["param"] == "audio_sample"


def test_missing_transcript_is_explained(api: APIClient) -> None:
    assert "needs the transcript" in create(api, without="transcript").json()["error"]["message"]


def test_name_that_is_taken_is_a_409(api: APIClient, operator: User) -> None:
    make_voice("ADA", owner=operator)

    answer = create(api)

    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "voice_name_taken")


def test_sample_that_is_too_large_is_a_413(api: APIClient, settings: Settings) -> None:
    settings.MAX_CLIP_BYTES = 100

    answer = create(api)

    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "clip_too_large")


def test_voice_as_json_is_a_415(api: APIClient) -> None:
    answer = api.post(VOICES, {"name": "Ada", "prompt": "Warm."}, format="json")

    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")


def test_deleted_voice_is_gone(api: APIClient, operator: User) -> None:
    voice = make_voice("Ada", owner=operator)

    answer = api.delete(f"{VOICES}/{voice.pk}")

    assert answer.json() == {"id": str(voice.pk), "object": "audio.voice", "deleted": True}
    assert api.delete(f"{VOICES}/{voice.pk}").status_code == 404
    assert api.get(VOICES).json()["voices"] == []


@pytest.mark.parametrize("voice_id", ["Ada", "3f662d3d-42ae-436f-af86-d2be87c536c3", "a" * 300])
@pytest.mark.parametrize("method", ["get", "delete"])
def test_voice_that_is_not_there_is_a_404(api: APIClient, voice_id: str, method: str) -> None:
    make_voice("Ada")

    answer = getattr(api, method)(f"{VOICES}/{voice_id}")

    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "voice_not_found")


def test_names_of_voices_need_no_key_where_the_setting_says_so(
    job_services: None, settings: Settings
) -> None:
    make_voice("Ada")
    assert APIClient().get(VOICES).status_code == 401

    settings.OPENAI_PUBLIC_VOICES = True

    assert APIClient().get(VOICES).json()["voices"][0]["name"] == "Ada"
    assert create(APIClient()).status_code == 401


def test_models_are_the_checkpoint_and_its_other_names(
    api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synth.openai.catalogue.OPENAI_ALIASES", ["tts-1", "Tiny"])

    for address in ("/v1/models", "/v1/audio/models"):
        listed = api.get(address).json()
        assert listed["object"] == "list"
        assert [model["id"] for model in listed["data"]] == ["Tiny", "tts-1"]
        assert {model["object"] for model in listed["data"]} == {"model"}
    assert api.get("/v1/models/tts-1").json()["id"] == "tts-1"
    assert api.get("/v1/models/tts-2").json()["error"]["code"] == "model_not_found"


def test_card_that_cannot_be_used_is_a_503(api: APIClient, settings: Settings) -> None:
    (settings.CHECKPOINT / "card.json").write_text("{")

    answer = api.get("/v1/models")

    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "checkpoint_card_invalid")


@pytest.mark.parametrize("method", ["get", "post", "put", "delete"])
@pytest.mark.parametrize(
    "address", ["/v1/", "/v1/chat/completions", "/v1/audio/speech/x", "/v1/x/"]
)
def test_address_that_leads_nowhere_is_a_404(api: APIClient, method: str, address: str) -> None:
    for client in (api, APIClient()):
        answer = getattr(client, method)(address)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "address"),
    [("get", "/v1/audio/speech"), ("put", VOICES), ("post", "/v1/models"), ("patch", VOICES)],
)
def test_method_that_is_not_taken_is_a_405(api: APIClient, method: str, address: str) -> None:
    answer = getattr(api, method)(address)

    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")


@pytest.mark.parametrize("header", [None, "Bearer nonsense", "Bearer", "Basic YTpi"])
@pytest.mark.parametrize("address", ["/v1/audio/speech", VOICES, "/v1/models"])
def test_request_without_a_good_key_is_a_401(
    job_services: None, header: str | None, address: str
) -> None:
    headers = {"Authorization": header} if header else {}

    answer = APIClient().post(address, {}, format="json", headers=headers)

    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (401, "authentication_error")
    assert answer.headers["x-should-retry"] == "false"
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_session_of_a_browser_is_no_key(job_services: None, operator: Any) -> None:
    client = Client()
    client.force_login(operator)

    assert client.get("/v1/models").status_code == 401


def test_query_that_is_not_acted_on_is_refused(api: APIClient) -> None:
    assert api.get("/v1/models?limit=3").json()["error"]["code"] == "unknown_field"
