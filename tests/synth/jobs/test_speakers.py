"""Jobs of several speakers: who speaks, and what is refused with the speaker's name."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings
from rest_framework.test import APIClient

from synth.models import RenderJob, Segment
from tests.factories import make_version, make_voice
from tests.synth.jobs.test_options import post as post_job
from tests.synth.test_job_requests import data_url
from tests.voices.clips import clip_bytes
from voices.models import Voice, VoiceVersion

pytestmark = pytest.mark.django_db(transaction=True)

TEXT = "The first sentence of this text. The second sentence of it."
DIALOG = "<|speaker:0|>How are you today, Bob? <|speaker:1|>Very well indeed, thank you, Ada."


@pytest.fixture
def ada(job_services: None) -> Voice:
    """A ready voice."""
    return make_voice("Ada", language="en")


@pytest.mark.parametrize("form", [False, True])
def test_several_voices_speak_by_the_numbers_of_the_tags(
    api: APIClient, ada: Voice, form: bool
) -> None:
    bob = make_voice("Bob")

    response = post_job(api, form, text=DIALOG, voices={"1": str(bob.pk), "0": "ada", "17": "Ada"})

    shown = response.json()
    assert response.status_code == 202, shown
    assert [(one["speaker"], one["name"]) for one in shown["voices"]] == [
        (0, "Ada"), (1, "Bob"), (17, "Ada"),
    ]  # fmt: skip
    assert [segment.speaker for segment in Segment.objects.order_by("pk")] == [0, 1]
    assert Voice.objects.filter(last_used_at__isnull=True).count() == 0


def test_speakers_that_do_not_fit_are_refused(api: APIClient, ada: Voice) -> None:
    make_voice("Slow", ready=False)
    make_voice("Bad").versions.update(status="failed", error_message="Only silence.")
    refused: list[tuple[dict[str, Any], int, str, str]] = [
        ({"voices": {}}, 400, "voice_required", "voice"),
        ({"voices": {"1": "Bob"}, "voice": "Ada"}, 400, "voice_ambiguous", "voice"),
        ({"voices": []}, 400, "invalid", "voices"),
        ({"voices": {"Ada": "Ada"}}, 400, "speaker_invalid", "voices"),
        ({"voices": {"-1": "Ada"}}, 400, "speaker_invalid", "voices"),
        ({"voices": {"01": "Ada"}}, 400, "speaker_invalid", "voices"),
        ({"voices": {"१": "Ada"}}, 400, "speaker_invalid", "voices"),
        ({"voices": {"9999": "Ada"}}, 400, "speaker_invalid", "voices"),
        ({"voices": {str(n): "Ada" for n in range(33)}}, 400, "too_many", "voices"),
        ({"voices": {"0": None}}, 400, "null", "voices.0"),
        ({"voices": {"0": "Ada", "1": "x" * 101}}, 400, "max_length", "voices.1"),
        ({"voices": {"0": "Ada", "1": "Nobody"}}, 404, "voice_not_found", "voices.1"),
        ({"voices": {"0": "Ada", "1": ""}}, 404, "voice_not_found", "voices.1"),
        ({"voices": {"0": "Ada", "1": "Slow"}}, 409, "voice_not_ready", "voices.1"),
        ({"voices": {"0": "Ada", "1": "Bad"}}, 409, "voice_failed", "voices.1"),
        ({"voices": {"1": "Ada"}, "text": TEXT}, 400, "speaker_unknown", "text"),
        ({"voices": {"0": "Ada"}}, 400, "speaker_unknown", "text"),
        ({"voice": "Ada"}, 400, "speaker_unknown", "text"),
        ({"voices": {"0": "Ada"}, "text": "<|speaker:99999|>Hi."}, 400, "speaker_unknown", "text"),
        ({"voice": "Ada", "references": {"0": {}}}, 400, "required", "references.0.audio"),
    ]
    for fields, status, code, attr in refused:
        response = post_job(api, **({"text": DIALOG} | fields))
        problem = response.json()
        assert response.status_code == status, problem
        error = problem["errors"][0]
        assert (error["code"], error["attr"]) == (code, attr), fields
    assert not RenderJob.objects.exists()


def test_speaker_without_a_voice_and_a_voice_that_is_not_ready_are_named(
    api: APIClient, ada: Voice
) -> None:
    make_voice("Slow", ready=False)

    voices = {"0": "Ada", "1": "Slow"}
    stranger = post_job(api, text="<|speaker:4|>Who am I?", voices=voices | {"1": "Ada"}).json()
    slow = post_job(api, text=DIALOG, voices=voices)

    assert "<|speaker:4|>" in stranger["detail"] and "0, 1" in stranger["detail"]
    assert "'Slow'" in slow.json()["detail"]
    assert "Retry-After" in slow.headers


@pytest.mark.parametrize("form", [False, True])
def test_voice_and_reference_may_speak_in_turn(api: APIClient, ada: Voice, form: bool) -> None:
    clip = {"audio": data_url(clip_bytes("wav")), "text": "What Bob says."}

    response = post_job(api, form, text=DIALOG, voice="Ada", references={"1": clip})

    assert response.status_code == 202, response.json()
    assert [one["name"] for one in response.json()["voices"]] == ["Ada", None]
    made = VoiceVersion.objects.get(voice=None)
    assert (made.clips.get().transcript, made.status) == ("What Bob says.", "pending")


def test_references_of_two_speakers_are_two_clips(api: APIClient, job_services: None) -> None:
    one = {"audio": data_url(clip_bytes("wav")), "text": "What Ada says."}
    two = {"audio": data_url(clip_bytes("flac")), "text": "What Bob says."}

    response = post_job(api, text=DIALOG, references={"0": one, "1": two})

    assert response.status_code == 202, response.json()
    pinned = RenderJob.objects.get().voices.order_by("speaker")
    said = [row.version.clips.get().transcript for row in pinned]
    assert said == ["What Ada says.", "What Bob says."]


WAV = data_url(clip_bytes("wav"))


def test_reference_of_a_speaker_is_refused_where_it_stands(
    api: APIClient, ada: Voice, settings: Settings
) -> None:
    refused: list[tuple[object, int, str, str]] = [
        ({"audio": "/etc/passwd", "text": "x"}, 400, "not_a_data_url", ".audio"),
        ({"audio": "file:///etc/passwd", "text": "x"}, 400, "not_a_data_url", ".audio"),
        ({"audio": data_url(b"x"), "text": "x"}, 400, "clip_not_audio", ".audio"),
        ({"audio": data_url(b"x" * 2000), "text": "x"}, 413, "clip_too_large", ".audio"),
        ({"audio": "HTTPS://a.example/a.wav", "text": "x"}, 400, "url_references_off", ".audio"),
        ({"audio": WAV}, 400, "required", ".text"),
        ("data:audio/wav;base64,AAAA", 400, "invalid", ""),
    ]
    usual = settings.MAX_CLIP_BYTES
    for clip, status, code, name in refused:
        settings.MAX_CLIP_BYTES = 1000 if status == 413 else usual
        response = post_job(api, text=DIALOG, voice="Ada", references={"1": clip})
        found = {(error["code"], error["attr"]) for error in response.json()["errors"]}
        assert response.status_code == status, response.json()
        assert (code, f"references.1{name}") in found


def test_speaker_with_a_voice_and_a_reference_is_refused(api: APIClient, ada: Voice) -> None:
    clip = {"audio": WAV, "text": "What Ada says."}

    response = post_job(api, voices={"0": "Ada"}, references={"0": clip})

    assert (response.status_code, response.json()["code"]) == (400, "voice_ambiguous")


def test_job_waits_until_the_voices_of_all_its_speakers_are_ready(
    api: APIClient, ada: Voice, sent_tasks: Any
) -> None:
    bob = make_voice("Bob")
    bob.versions.update(status=VoiceVersion.Status.PENDING)

    response = post_job(api, text=DIALOG, voices={"0": "Ada", "1": "Bob"})

    assert response.status_code == 202
    assert sent_tasks("render_segments") == []


def test_newest_versions_of_all_voices_are_pinned(api: APIClient, ada: Voice) -> None:
    bob = make_voice("Bob", versions=2)
    newest = bob.current_version

    post_job(api, text=DIALOG, voices={"0": "Ada", "1": "Bob"})
    make_version(bob)

    pinned = RenderJob.objects.get().voices.order_by("speaker")
    assert [row.version for row in pinned] == [ada.current_version, newest]
