"""The official client, unchanged, against a real server: every format, streams, errors, retries."""

from __future__ import annotations

import base64
import contextlib
import io
import json
from pathlib import Path
from typing import Any, Literal

import av
import httpx
import httpx2
import numpy as np
import openai
import pytest
import soundfile

from tests.openai_client.conftest import CLIP, Serving

Format = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]
TEXT = "I saw the lamp."
MODEL = "tts-1"


def jobs_of(serving: Serving) -> list[dict[str, Any]]:
    """Return the jobs of the key's user, newest first."""
    headers = {"Authorization": f"Bearer {serving.key}"}
    jobs = httpx.get(f"{serving.url}/api/v1/jobs?limit=100", headers=headers).json()["results"]
    assert isinstance(jobs, list)
    return jobs


def attempts_of(serving: Serving, job_id: str) -> list[int]:
    """Return how often each segment of a job was rendered."""
    headers = {"Authorization": f"Bearer {serving.key}"}
    url = f"{serving.url}/api/v1/jobs/{job_id}/segments"
    return [segment["attempts"] for segment in httpx.get(url, headers=headers).json()["results"]]


def decoded(content: bytes) -> tuple[np.ndarray, int, str]:
    """Return a file's samples, its rate and its codec's name."""
    with av.open(io.BytesIO(content), "r") as opened:
        stream = opened.streams.audio[0]
        to_float = av.AudioResampler(format="fltp", layout="mono")
        blocks = [
            part.to_ndarray()[0]
            for frame in opened.decode(stream)
            for part in to_float.resample(frame)
        ]
        return np.concatenate(blocks), stream.codec_context.sample_rate, stream.codec_context.name


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
    answer = client.audio.speech.create(model=MODEL, voice="Ada", input=TEXT, response_format=form)

    if form == "pcm":
        samples, rate = np.frombuffer(answer.content, dtype="<i2") / 2**15, 24_000
    else:
        samples, rate, name = decoded(answer.content)
        assert name == codec
    reference, reference_rate, _ = decoded(
        client.audio.speech.create(
            model=MODEL, voice="Ada", input=TEXT, response_format="flac"
        ).content
    )
    assert answer.response.headers["content-type"] == content_type
    assert 0.02 < np.sqrt(np.mean(np.square(samples))) < 0.5
    assert len(samples) / rate == pytest.approx(len(reference) / reference_rate, abs=0.1)


def test_other_speed_changes_the_length_and_renders_nothing_again(
    client: openai.OpenAI, serving: Serving
) -> None:
    def length(speed: float) -> float:
        answer = client.audio.speech.create(
            model=MODEL, voice="Ada", input=TEXT, response_format="wav", speed=speed
        )
        samples, rate = soundfile.read(io.BytesIO(answer.content))
        return float(len(samples) / rate)

    plain, fast, slow = length(1.0), length(2.0), length(0.5)

    assert fast == pytest.approx(plain / 2, rel=0.01)
    assert slow == pytest.approx(plain * 2, rel=0.01)
    assert [job["speed"] for job in jobs_of(serving)][:2] == [0.5, 2.0]


def test_stream_of_bytes_is_the_same_file(client: openai.OpenAI, tmp_path: Path) -> None:
    whole = client.audio.speech.create(model=MODEL, voice="Ada", input=TEXT).content

    with client.audio.speech.with_streaming_response.create(
        model=MODEL, voice="Ada", input=TEXT, stream_format="audio"
    ) as answer:
        answer.stream_to_file(tmp_path / "file.mp3")

    assert (tmp_path / "file.mp3").read_bytes() == whole


def test_events_hold_the_same_file_and_what_it_took(client: openai.OpenAI) -> None:
    whole = client.audio.speech.create(model=MODEL, voice="Ada", input=TEXT).content

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

    answer = client.audio.speech.create(
        model=MODEL, voice="Ada", input=text, response_format="flac"
    )

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
            impatient.audio.speech.create(model=MODEL, voice="Ada", input=text)
    answer = serving.client().audio.speech.create(model=MODEL, voice="Ada", input=text)

    made = jobs_of(serving)
    assert len(answer.content) > 1_000
    assert len(made) == before + 1
    assert made[0]["segments_done"] == made[0]["segments_total"]


def test_errors_have_a_code_and_the_name_of_the_field(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as no_voice:
        client.audio.speech.create(model=MODEL, voice="Nobody", input=TEXT)
    with pytest.raises(openai.BadRequestError) as too_fast:
        client.audio.speech.create(model=MODEL, voice="Ada", input=TEXT, speed=5)
    with pytest.raises(openai.NotFoundError) as no_model:
        client.audio.speech.create(model="gpt-5", voice="Ada", input=TEXT)
    with pytest.raises(openai.BadRequestError) as too_long:
        client.audio.speech.create(model=MODEL, voice="Ada", input="a" * 4097)
    with pytest.raises(openai.BadRequestError) as body:
        client.audio.speech.create(model=MODEL, voice="Ada", input=TEXT, instructions="Whisper")
    with pytest.raises(openai.BadRequestError) as unknown:
        client.audio.speech.create(model=MODEL, voice="Ada", input=TEXT, extra_body={"pitch": 2})

    found = [(error.value.code, error.value.param) for error in (no_voice, too_fast, no_model)]
    assert found == [("voice_not_found", "voice"), ("out_of_range", "speed"),
                     ("model_not_found", "model")]  # fmt: skip
    assert (too_long.value.code, too_long.value.param) == ("input_too_long", "input")
    assert "POST /api/v1/jobs" in too_long.value.message
    assert (body.value.code, body.value.param) == ("instructions_not_supported", "instructions")
    assert (unknown.value.code, unknown.value.param) == ("unknown_field", "pitch")


def test_wrong_key_is_an_authentication_error(serving: Serving) -> None:
    with pytest.raises(openai.AuthenticationError) as error:
        serving.client(api_key="tts_wrong").models.list()

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
    answer = client.audio.speech.create(model=names[0], voice="Ada", input=TEXT)
    assert len(answer.content) > 1_000


def test_voice_speaks_by_name_id_object_and_other_name(
    client: openai.OpenAI, serving: Serving
) -> None:
    listed = client.get("/audio/voices", cast_to=dict[str, Any])
    voice_id = next(voice["id"] for voice in listed["voices"] if voice["name"] == "Ada")
    expected = client.audio.speech.create(model=MODEL, voice="Ada", input=TEXT).content
    before = len(jobs_of(serving))

    voices: list[Any] = [voice_id, {"id": voice_id}, "alloy"]
    for voice in voices:
        answer = client.audio.speech.create(model=MODEL, voice=voice, input=TEXT)
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

    assert (no_transcript.value.param, voice.name, voice.type) == (
        "transcript",
        "Bob",
        "audio_sample",
    )
    assert names == ["Ada", "Bob"]
    assert deleted["deleted"] is True
    names = [v["name"] for v in client.get("/audio/voices", cast_to=dict[str, Any])["voices"]]
    assert names == ["Ada"]
