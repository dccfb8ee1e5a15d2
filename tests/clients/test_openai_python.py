"""The official client, unchanged, against a real server: every format, streams, errors, retries."""

from __future__ import annotations

import base64
import contextlib
import io
import json
from pathlib import Path
from typing import Any, Literal

import httpx2
import numpy as np
import openai
import pytest
import soundfile

from tests.clients.conftest import Serving
from tests.clients.replay import bare_samples, decoded
from tests.workers.commands import CLIP

Format = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]
TEXT = "I saw the lamp."
MODEL = "tts-1"
# Streams of AAC and MP3 say nowhere how many samples of their first and last frames are no sound.
_PADDING = {"aac": 2 * 1024, "mp3": 4 * 576}


def jobs_of(serving: Serving) -> list[dict[str, Any]]:
    """Return the jobs of the key's user, newest first."""
    jobs: list[dict[str, Any]] = serving.get("/jobs?limit=100").json()["results"]
    return jobs


def attempts_of(serving: Serving, job_id: str) -> list[int]:
    """Return how often each segment of a job was rendered."""
    segments = serving.get(f"/jobs/{job_id}/segments").json()["results"]
    return [segment["attempts"] for segment in segments]


def speak(client: openai.OpenAI, text: str = TEXT, **options: Any) -> Any:
    return client.audio.speech.create(**{"model": MODEL, "voice": "Ada", "input": text, **options})


def finished(client: openai.OpenAI, serving: Serving, **options: Any) -> bytes:
    """Return the finished file of a text: what an equal call gets once the job has succeeded."""
    job_id = speak(client, **options).response.headers["tts-job-id"]
    assert serving.get(f"/jobs/{job_id}?wait=60").json()["status"] == "succeeded"
    content: bytes = speak(client, **options).content
    return content


@pytest.mark.parametrize(
    ("form", "codec", "content_type"),
    [
        ("mp3", "mp3float", "audio/mpeg"),
        ("opus", "opus", "audio/ogg"),
        ("aac", "aac", "audio/aac"),
        ("flac", "flac", "audio/flac"),
        ("wav", "pcm_s16le", "audio/wav"),
        ("pcm", "", "audio/pcm"),
    ],
)
def test_every_format_is_speech_of_the_same_length(
    client: openai.OpenAI, form: Format, codec: str, content_type: str
) -> None:
    answer = speak(client, response_format=form)

    if form == "pcm":
        samples, rate = bare_samples(answer.content), 24_000
    else:
        samples, rate, name = decoded(answer.content)
        assert name == codec
    reference, reference_rate, _ = decoded(speak(client, response_format="flac").content)
    assert answer.response.headers["content-type"] == content_type
    assert 0.02 < np.sqrt(np.mean(np.square(samples))) < 0.5
    padding = _PADDING.get(form, 0) / rate + 0.001
    assert len(samples) / rate == pytest.approx(len(reference) / reference_rate, abs=padding)


def test_other_speed_changes_the_length_and_renders_nothing_again(
    client: openai.OpenAI, serving: Serving
) -> None:
    def length(speed: float) -> float:
        answer = speak(client, response_format="wav", speed=speed)
        samples, rate = soundfile.read(io.BytesIO(answer.content))
        return float(len(samples) / rate)

    plain, fast, slow = length(1.0), length(2.0), length(0.5)

    assert fast == pytest.approx(plain / 2, rel=0.01)
    assert slow == pytest.approx(plain * 2, rel=0.01)
    assert [job["speed"] for job in jobs_of(serving)][:2] == [0.5, 2.0]


def test_stream_of_bytes_is_the_same_file(
    client: openai.OpenAI, serving: Serving, tmp_path: Path
) -> None:
    whole = finished(client, serving)

    with client.audio.speech.with_streaming_response.create(
        model=MODEL, voice="Ada", input=TEXT, stream_format="audio"
    ) as answer:
        answer.stream_to_file(tmp_path / "file.mp3")

    assert (tmp_path / "file.mp3").read_bytes() == whole


def test_events_hold_the_same_file_and_what_it_took(
    client: openai.OpenAI, serving: Serving
) -> None:
    whole = finished(client, serving)

    with client.audio.speech.with_streaming_response.create(
        model=MODEL, voice="Ada", input=TEXT, stream_format="sse"
    ) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]

    events = [json.loads(line) for line in lines]
    sound = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    usage = events[-1]["usage"]
    assert {event["type"] for event in events[:-1]} == {"speech.audio.delta"}
    assert events[-1]["type"] == "speech.audio.done"
    assert sound == whole
    assert usage["input_tokens"] == len(TEXT) and usage["output_tokens"] > 10
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


class FlakyTransport(httpx2.HTTPTransport):
    """Lose the first answers after the server has given them: by a cut line, or as a 502."""

    def __init__(self, losses: list[str]) -> None:
        super().__init__()
        self.losses = losses
        self.statuses: list[int] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request, and hand its answer on unless it is to be lost."""
        answer = super().handle_request(request)
        answer.read()
        self.statuses.append(answer.status_code)
        if not self.losses:
            return answer
        if self.losses.pop(0) == "cut":
            raise httpx2.ReadError("the line was cut", request=request)
        return httpx2.Response(502, request=request, text="Bad Gateway")


@pytest.mark.parametrize("losses", [["cut", "cut"], ["502", "502"]])
def test_retries_of_the_client_get_the_audio_of_the_one_job(
    serving: Serving, losses: list[str]
) -> None:
    text = f"The {losses[0]} lamp was red."
    before = len(jobs_of(serving))
    transport = FlakyTransport(list(losses))
    client = serving.client(http_client=httpx2.Client(transport=transport))

    answer = speak(client, text, response_format="flac")

    made = jobs_of(serving)[: len(jobs_of(serving)) - before]
    assert transport.statuses == [200, 200, 200]
    assert len(decoded(answer.content)[0]) > 10_000
    assert [job["text_start"] for job in made] == [text]
    assert (made[0]["segments_total"], made[0]["segments_done"]) == (1, 1)
    assert attempts_of(serving, made[0]["id"]) == [1]


def test_client_that_gave_up_waiting_joins_its_job_when_it_comes_again(serving: Serving) -> None:
    text = "This one sentence is read while nobody listens. And so is that one. And this."
    before = len(jobs_of(serving))
    impatient = serving.client(timeout=0.2, max_retries=0)

    for _ in range(3):
        with contextlib.suppress(openai.APITimeoutError):  # a quick machine may be in time
            speak(impatient, text)
    answer = speak(serving.client(), text)

    made = jobs_of(serving)
    assert len(answer.content) > 1_000
    assert len(made) == before + 1
    assert made[0]["segments_done"] == made[0]["segments_total"]


@pytest.mark.parametrize(
    ("options", "code", "param", "words"),
    [
        ({"voice": "Nobody"}, "voice_not_found", "voice", ""),
        ({"speed": 5}, "out_of_range", "speed", ""),
        ({"text": "a" * 4097}, "input_too_long", "input", "POST /api/v1/jobs"),
        ({"extra_body": {"temperature": 9}}, "out_of_range", "temperature", ""),
    ],
)
def test_errors_have_a_code_and_the_name_of_the_field(
    client: openai.OpenAI, options: dict[str, Any], code: str, param: str, words: str
) -> None:
    is_missing = code.endswith("_not_found")
    with pytest.raises(openai.NotFoundError if is_missing else openai.BadRequestError) as error:
        speak(client, **options)
    assert (error.value.code, error.value.param) == (code, param)
    assert words in error.value.message


def test_what_the_model_cannot_do_is_answered_and_told(client: openai.OpenAI) -> None:
    for stream_format in ("audio", "sse"):
        with client.audio.speech.with_streaming_response.create(
            model="gpt-5", voice="alloy", input=f"As {stream_format}.", instructions="Whisper.",
            response_format="wav", stream_format=stream_format, extra_body={"pitch": 2, "seed": 3},
        ) as answer:  # fmt: skip
            assert len(answer.read()) > 1_000
        told = [answer.headers.get(f"X-TTS-{name}") for name in ("Ignored", "Model", "Voice")]
        assert told == ["instructions, pitch", "ttsweb demo", "Ada"], stream_format


def test_azure_s_client_speaks_with_the_same_key(serving: Serving) -> None:
    azure = openai.AzureOpenAI(
        azure_endpoint=serving.url, api_key=serving.key, api_version="2025-04-01-preview"
    )
    answer = azure.audio.speech.create(model="my-speech", voice="alloy", input=TEXT)
    assert answer.content == speak(serving.client()).content


def test_wrong_key_is_an_authentication_error(serving: Serving) -> None:
    with pytest.raises(openai.AuthenticationError) as error:
        speak(serving.client(api_key="tts_wrong"))

    assert error.value.type == "authentication_error"


def test_address_that_is_not_served_is_an_error_of_the_same_form(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as error:
        client.embeddings.create(model=MODEL, input="x", encoding_format="float")

    assert error.value.code == "not_found"
    assert "/v1/audio/speech" in error.value.message


def test_models_are_the_checkpoint_and_the_names_that_clients_know(client: openai.OpenAI) -> None:
    names = [model.id for model in client.models.list()]

    assert names == ["ttsweb demo", "tts-1", "tts-1-hd", "gpt-4o-mini-tts"]
    assert client.models.retrieve("tts-1").owned_by == "ttsweb"
    answer = speak(client, model=names[0])
    assert len(answer.content) > 1_000


def test_voice_speaks_by_name_id_object_and_other_name(
    client: openai.OpenAI, serving: Serving
) -> None:
    listed = client.get("/audio/voices", cast_to=dict[str, Any])
    voice_id = next(voice["id"] for voice in listed["data"] if voice["name"] == "Ada")
    expected = finished(client, serving)
    before = len(jobs_of(serving))

    voices: list[Any] = [voice_id, {"id": voice_id}, "alloy"]
    for voice in voices:
        answer = speak(client, voice=voice)
        assert answer.content == expected

    assert len(jobs_of(serving)) == before


def test_voice_is_made_listed_and_deleted(client: openai.OpenAI) -> None:
    sample = ("clip.wav", CLIP.read_bytes(), "audio/wav")
    with pytest.raises(openai.BadRequestError) as no_transcript:
        client.audio.voices.create(name="Bob", audio_sample=sample, consent="He agreed.")
    voice = client.audio.voices.create(
        name="Bob", audio_sample=sample, consent="He agreed.", extra_body={"transcript": "A lamp."}
    )

    names = [v["name"] for v in client.get("/audio/voices", cast_to=dict[str, Any])["voices"]]
    deleted = client.delete(f"/audio/voices/{voice.id}", cast_to=dict[str, Any])

    assert no_transcript.value.param == "transcript"
    assert (voice.name, voice.type) == ("Bob", "audio_sample")
    assert names == ["Ada", "Bob"]
    assert deleted["deleted"] is True
    names = [v["name"] for v in client.get("/audio/voices", cast_to=dict[str, Any])["voices"]]
    assert names == ["Ada"]
