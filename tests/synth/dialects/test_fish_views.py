"""Fish's calls: what is read of a request, what is said of the rest, errors in its shape."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import unquote

import ormsgpack
import pytest
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.utils import timezone
from pytest_django import Settings
from rest_framework.test import APIClient

from synth.dialects.fish import WELL_KNOWN
from synth.dialects.speech_wait import THEN_HEADER
from synth.dialects.views import ignored_counts
from synth.live.streams import LIVE_HEADER
from synth.models import RenderJob
from tests.answers import ignored_of
from tests.factories import make_export, make_user, make_voice
from tests.voices.clips import clip_bytes
from voices.models import Voice, VoiceAlias

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("ada")]

URL = "/v1/tts"
MSGPACK = "application/msgpack"


@pytest.fixture
def ada(job_services: None) -> Voice:
    """A voice that everybody may use."""
    return make_voice("Ada", language="en-GB")


def post(api: APIClient, url: str = URL, **fields: Any) -> Any:
    """Ask for speech; no wrapper waits here, so an unfinished job answers at once."""
    return api.post(url, {"text": "Hello there."} | fields, format="json")


def pack(api: APIClient, **fields: Any) -> Any:
    body = ormsgpack.packb({"text": "Hello there."} | fields)
    return api.post(URL, body, content_type=MSGPACK)


def error_of(answer: Any) -> tuple[int, str, str | None]:
    """Return status, code and field of an error, which has Fish's members and two of ours."""
    body = answer.json()
    assert set(body) == {"status", "message", "code", "param"}
    assert body["status"] == answer.status_code and body["message"]
    return answer.status_code, body["code"], body["param"]


def test_request_makes_a_live_job_that_the_answer_s_address_belongs_to(
    api: APIClient, operator: User, ada: Voice
) -> None:
    answer = post(api, reference_id="Ada", format="opus", prosody={"speed": 1.5, "volume": 0})

    job = RenderJob.objects.get()
    assert (job.text, job.format, job.speed) == ("Hello there.", "opus", 1.5)
    assert (job.owner, job.api_key) == (operator, operator.api_keys.get())
    assert job.voices.get().version == ada.current_version
    assert job.live_requested_at is not None and LIVE_HEADER in answer.headers
    assert answer.headers[THEN_HEADER] == f"300.0 {job.pk} {URL}/{job.pk}?stream_format=audio"
    assert error_of(answer) == (503, "too_many_waiting", None)
    assert (ignored_of(answer), answer.headers["X-TTS-Model"]) == ("", "Tiny")
    post(api, reference_id=str(ada.pk), format="opus", prosody={"speed": 1.5})
    assert RenderJob.objects.count() == 1  # an equal call joins


def test_what_the_model_can_do_is_honoured(api: APIClient) -> None:
    rows: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {"format": "mp3", "sample_rate": None, "bit_rate": None, "speed": 1.0, "seed": 0}),
        ({"format": "pcm"}, {"format": "pcm", "sample_rate": 44_100}),
        ({"format": "pcm", "sample_rate": 16_000}, {"sample_rate": 16_000}),
        ({"mp3_bitrate": 64, "opus_bitrate": 24}, {"format": "mp3", "bit_rate": 64_000}),
        ({"format": "opus", "opus_bitrate": 32_000}, {"bit_rate": 32_000}),
        ({"format": "opus", "opus_bitrate": 32}, {"bit_rate": 32_000}),
        ({"format": "opus", "opus_bitrate": -1000}, {"bit_rate": None}),
        ({"normalize": True}, {"normalise": True}), ({"seed": 7}, {"seed": 7}),
        ({"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9}),
        ({"latency": "normal", "streaming": True, "seed": None, "format": None}, {"format": "mp3"}),
    ]  # fmt: skip
    for number, (fields, wanted) in enumerate(rows):
        answer = pack(api, text=f"Text {number}.", **fields)
        assert (answer.status_code, ignored_of(answer)) == (503, ""), fields
        job = RenderJob.objects.get(text=f"Text {number}.")
        assert {name: getattr(job, name) for name in wanted} == wanted, fields


def test_what_is_ignored_is_named_and_counted(api: APIClient) -> None:
    clip = {"audio": base64.b64encode(clip_bytes()).decode(), "text": "What she says."}
    rows: list[tuple[dict[str, Any], str]] = [
        ({"chunk_length": 100, "features": ["x"]}, "chunk_length, features"),
        ({"prosody": {"volume": 3, "pitch": 1}}, "prosody.pitch, prosody.volume"),
        ({"seed": -1}, "seed"), ({"temperature": 0}, "temperature"),
        ({"mp3_bitrate": 300}, "mp3_bitrate"),
        ({"format": "wav", "sample_rate": 48_000, "mp3_bitrate": 64}, ""),
        ({"reference_id": "Ada", "references": [clip]}, "references"),
        ({"references": [clip, clip]}, "references.1"),
    ]  # fmt: skip
    for fields, names in rows:
        answer = post(api, **fields)
        assert (answer.status_code, ignored_of(answer)) == (503, names), fields
    assert ignored_of(post(api, f"{URL}?format=msgpack&x=1")) == "x"
    assert ignored_counts()["fish"] == {
        "seed": 1, "chunk_length": 1, "features": 1, "mp3_bitrate": 1, "prosody.pitch": 1,
        "prosody.volume": 1, "references": 1, "references.1": 1, "temperature": 1, "x": 1,
    }  # fmt: skip


def test_clip_speaks_in_place_of_a_voice_in_both_kinds_of_body(api: APIClient) -> None:
    clip = clip_bytes()
    packed = pack(api, references=[{"audio": clip, "text": "What she says."}])
    job = RenderJob.objects.get()
    assert job.voices.get().version.voice is None
    assert "X-TTS-Voice" not in packed.headers
    for audio in (
        base64.b64encode(clip).decode(),
        "data:audio/wav;base64," + base64.b64encode(clip).decode(),
    ):
        post(api, references=[{"audio": audio, "text": "What she says."}])
    assert RenderJob.objects.count() == 1


def test_speakers_of_a_text_have_a_voice_each(api: APIClient, ada: Voice) -> None:
    bob = make_voice("Bob, the older")
    text = "<|speaker:0|>Hello.<|speaker:1|>Well, hello."
    answer = post(api, text=text, reference_id=["Ada", str(bob.pk)])

    assert answer.status_code == 503
    names = [unquote(name) for name in answer.headers["X-TTS-Voice"].split(", ")]
    assert names == ["Ada", "Bob, the older"]
    job = RenderJob.objects.get()
    assert {voice.version.voice for voice in job.voices.all()} == {ada, bob}
    lost = post(api, text=text, reference_id="Ada")
    assert lost.status_code in {400, 503}


def test_names_that_clients_have_built_in_mean_the_default_voices(
    api: APIClient, ada: Voice
) -> None:
    make_voice("Bob")
    VoiceAlias.objects.create(name=WELL_KNOWN[1], voice=ada)
    rows = [(None, "Ada"), (WELL_KNOWN[0], "Ada"), (WELL_KNOWN[1], "Ada"), ("ash", "Bob")]
    for wanted, name in rows:
        assert post(api, reference_id=wanted).headers["X-TTS-Voice"] == name, wanted
    lost = post(api, reference_id="Adda")
    assert error_of(lost) == (404, "voice_not_found", "reference_id")
    assert "Similar names: Ada." in lost.json()["message"]


NO_AUDIO = base64.b64encode(b"x" * 99).decode()
WRONG: list[tuple[str, object, str]] = [
    ("text", 5, "invalid"), ("text", "a\0b", "text_not_text"),
    ("reference_id", 5, "invalid"), ("reference_id", "a\0", "invalid"),
    ("reference_id", [], "invalid"), ("reference_id", ["Ada"] * 33, "invalid"),
    ("references", "Ada", "not_a_list"), ("references", [5], "invalid"),
    ("references", [{"audio": "%", "text": "x"}], "not_a_data_url"),
    ("references", [{"audio": NO_AUDIO, "text": "x"}], "clip_not_audio"),
    ("references", [{"audio": "", "text": "x"}], "not_a_data_url"),
    ("format", "ogg", "invalid_choice"), ("format", ["mp3"], "invalid_choice"),
    ("sample_rate", 22_051, "sample_rate_unfit"), ("sample_rate", 1, "out_of_range"),
    ("mp3_bitrate", "64", "invalid"), ("normalize", "yes", "invalid"),
    ("prosody", 5, "invalid"), ("prosody", {"speed": 9}, "out_of_range"),
    ("temperature", 3, "out_of_range"), ("top_p", "x", "invalid"), ("seed", 1.5, "invalid"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "code"), WRONG)
def test_wrong_values_are_refused_in_fish_s_shape(
    api: APIClient, name: str, value: object, code: str
) -> None:
    wrong: dict[str, Any] = {name: value}
    answer = post(api, **wrong)

    status, found, param = error_of(answer)
    assert (status, found) == (400, code), answer.json()
    assert param is not None and param.startswith(name), answer.json()
    assert not RenderJob.objects.exists()


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"\xc1", MSGPACK, 400), (b"", MSGPACK, 400), (ormsgpack.packb([1]), MSGPACK, 400),
        (ormsgpack.packb({"text": "x"})[:-1], MSGPACK, 400), (b"\x81\x01\x02", MSGPACK, 400),
        (b"\x91" * 5000, MSGPACK, 400), (b"\xd4\x01\x00", MSGPACK, 400),
        (ormsgpack.packb({"text": "x", "prosody": {"speed": float("nan")}}), MSGPACK, 400),
        (b"{", "application/json", 400), (b"text=x", "application/x-www-form-urlencoded", 415),
        (b"x", "multipart/form-data; boundary=x", 415),
    ],
)  # fmt: skip
def test_bodies_that_cannot_be_read_are_refused(
    api: APIClient, body: bytes, kind: str, status: int
) -> None:
    answer: Any = api.generic("POST", URL, body, content_type=kind)  # type: ignore[arg-type]

    assert error_of(answer)[0] == status


def test_bodies_that_are_too_long_are_refused(api: APIClient, settings: Settings) -> None:
    settings.MAX_CLIP_BYTES = 1000
    long = {"audio": bytes(1001), "text": "x"}
    assert error_of(pack(api, references=[long]))[:2] == (413, "clip_too_large")
    settings.MAX_TEXT_CHARS = 100
    assert error_of(post(api, text="A word. " * 20))[:2] == (413, "text_too_long")
    body = ormsgpack.packb({"text": "x", "chunk": bytes(30_000_000)})
    assert api.post(URL, body, content_type=MSGPACK).status_code == 413


def test_keys_are_asked_for_in_fish_s_shape() -> None:
    api = APIClient()
    for address in (URL, "/model", "/model/Ada"):
        asked = api.post(address) if address == URL else api.get(address)
        assert error_of(asked)[0] == 401, address
    assert error_of(api.get(URL, HTTP_AUTHORIZATION="Bearer x"))[0] in {401, 405}
    for method in (api.get, api.post):
        assert method("/v1/health").json() == {"status": "ok"}


def test_finished_speech_is_the_file(api: APIClient) -> None:
    post(api, reference_id="Ada")
    job = RenderJob.objects.get()
    key = default_storage.save(f"exports/{job.pk}", ContentFile(b"0123456789"))
    make_export(job, key=key, size_bytes=10)
    status = RenderJob.Status.SUCCEEDED
    RenderJob.objects.filter(pk=job.pk).update(status=status, finished_at=timezone.now())

    again: Any = api.get(f"{URL}/{job.pk}?stream_format=audio")
    for answer in (post(api, reference_id="Ada"), again):
        assert b"".join(answer.streaming_content) == b"0123456789"
        assert answer.headers["Content-Type"] == "audio/mpeg"
        assert answer.headers["TTS-Job-Id"] == str(job.pk)
    RenderJob.objects.filter(pk=job.pk).update(owner=make_user())
    assert error_of(api.get(f"{URL}/{job.pk}"))[:2] == (404, "job_not_found")


def test_text_without_a_word_is_a_short_silence(api: APIClient) -> None:
    answer = post(api, text="...", format="wav")

    content = b"".join(answer.streaming_content) if answer.streaming else answer.content
    assert (answer.status_code, content[:4]) == (200, b"RIFF")
    assert not RenderJob.objects.exists()


def test_voices_are_listed_a_page_at_a_time(api: APIClient, operator: User) -> None:
    make_voice("Bob", owner=operator)
    make_voice("Secret", owner=make_user())
    Voice.objects.filter(pk=make_voice("Old").pk).update(archived=True)

    first = api.get("/model?page_size=1&page_number=1&self=true&sort_by=score")
    second = api.get("/model?page_size=1&page_number=2").json()
    assert ignored_of(first) == "self, sort_by"
    found = first.json()
    assert [found["total"], found["has_more"]] == [2, True]
    assert [second["total"], second["has_more"]] == [2, False]
    ada, bob = found["items"][0], second["items"][0]
    assert [ada["title"], bob["title"]] == ["Ada", "Bob"]
    assert [ada["languages"], ada["state"], ada["type"]] == [["en-GB"], "trained", "tts"]
    assert [ada["visibility"], bob["visibility"]] == ["public", "private"]
    titles = [item["title"] for item in api.get("/model?title=BO").json()["items"]]
    assert titles == ["Bob"]
    assert [one["title"] for one in api.get("/model?language=en").json()["items"]] == ["Ada"]
    assert error_of(api.get("/model?page_size=0"))[0] == 400
    assert api.get(f"/model/{bob['_id']}").json()["author"]["nickname"] == operator.username
    assert api.get("/model/ada/").json()["title"] == "Ada"
    for lost in ("Secret", "alloy", "a%00b", "x" * 200):
        assert error_of(api.get(f"/model/{lost}"))[:2] == (404, "voice_not_found"), lost
