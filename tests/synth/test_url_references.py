"""Clips that a request names by their URLs: fetched only where that is allowed, and bounded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django import Settings
from rest_framework.test import APIClient

from synth.jobs.orders import MAX_URLS_PER_REQUEST, UrlClip
from synth.jobs.planning import Order, Planner
from synth.models import RenderJob
from tests.factories import make_voice
from tests.ttsweb.http.listeners import Listener, listening
from tests.voices.clips import clip_bytes
from ttsweb.http.problems import status_of
from ttsweb.refusals import SubmitRejectedError
from voices.models import StoredClip, VoiceVersion

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]

URL = "/api/v1/jobs"
TEXT = "The first sentence of this text."


@pytest.fixture
def server() -> Iterator[Listener]:
    """A server on 127.0.0.1."""
    with listening() as listener:
        yield listener


@pytest.fixture
def fetching(settings: Settings) -> None:
    """Fetch URLs, private ones too."""
    settings.URL_REFERENCES = True
    settings.ALLOW_PRIVATE_URLS = True


def ask(api: APIClient, audio: object, headers: dict[str, str] | None = None) -> Any:
    fields = {"text": TEXT, "reference": {"audio": audio, "text": "What is said."}}
    return api.post(URL, fields, format="json", headers=headers)


def wav_answer() -> tuple[int, dict[str, str], bytes]:
    content = clip_bytes("wav")
    return 200, {"Content-Type": "text/plain", "Content-Length": str(len(content))}, content


def test_clip_is_fetched_and_pinned_to_the_job(
    api: APIClient, fetching: None, server: Listener
) -> None:
    server.answers = [wav_answer()]

    response = ask(api, f"http://127.0.0.1:{server.port}/clips/my%20ada.wav?x=1")

    assert response.status_code == 202, response.json()
    clip = VoiceVersion.objects.get(voice=None).clips.get()
    assert (clip.filename, clip.transcript) == ("my ada.wav", "What is said.")
    assert clip.stored.size_bytes == len(clip_bytes("wav"))


def test_nothing_is_fetched_unless_the_operator_turned_it_on(
    api: APIClient, settings: Settings, server: Listener
) -> None:
    settings.ALLOW_PRIVATE_URLS = True
    server.answers = [wav_answer()]

    response = ask(api, f"http://127.0.0.1:{server.port}/ada.wav")

    assert (response.status_code, response.json()["code"]) == (400, "url_references_off")
    assert server.arrived == []


def test_no_way_to_order_a_job_fetches_where_that_is_off(
    settings: Settings, server: Listener
) -> None:
    settings.ALLOW_PRIVATE_URLS = True
    order = Order(TEXT, reference=UrlClip(f"http://127.0.0.1:{server.port}/a.wav", "Said."))

    with pytest.raises(SubmitRejectedError) as caught:
        Planner(None).plan(order)

    assert (status_of(caught.value), caught.value.code) == (400, "url_references_off")
    assert server.arrived == []


def test_own_network_is_not_reached_where_urls_are_fetched(
    api: APIClient, settings: Settings, server: Listener
) -> None:
    settings.URL_REFERENCES = True

    response = ask(api, f"http://127.0.0.1:{server.port}/ada.wav")

    assert (response.status_code, response.json()["code"]) == (400, "url_private_address")
    assert response.json()["errors"][0]["attr"] == "reference"
    assert server.arrived == []
    assert not RenderJob.objects.exists()


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        ((404, {"Content-Length": "0"}, b""), 400, "url_status"),
        ((200, {"Content-Length": "9"}, b"some text"), 400, "clip_not_audio"),
        ((200, {"Content-Length": "0"}, b""), 400, "clip_empty"),
        ((200, {"Content-Length": "9999"}, b"x" * 9999), 413, "url_too_large"),
        ((302, {"Location": "file:///etc/passwd", "Content-Length": "0"}, b""), 400, "url_scheme"),
    ],
)
def test_url_without_a_clip_is_refused(
    api: APIClient, fetching: None, server: Listener, settings: Settings,
    answer: Any, status: int, code: str,
) -> None:  # fmt: skip
    settings.MAX_CLIP_BYTES = 5000
    server.answers = [answer]

    response = ask(api, f"http://127.0.0.1:{server.port}/ada.wav")

    assert (response.status_code, response.json()["code"]) == (status, code)
    assert not StoredClip.objects.exists()


@pytest.mark.parametrize(
    "audio",
    [
        "/etc/passwd", "file:///etc/passwd", "file://localhost/etc/passwd", "ada.wav",
        "../ada.wav", "C:\\ada.wav", "\\\\host\\ada.wav", "data:,x", "gopher://x/", "//host/a.wav",
        " http://example.org/a.wav", "", 5, None, [], {},
    ],
)  # fmt: skip
def test_path_of_a_file_is_never_taken(api: APIClient, fetching: None, audio: object) -> None:
    response = ask(api, audio)

    assert response.status_code == 400
    assert response.json()["errors"][0]["attr"] == "reference.audio"


@pytest.mark.parametrize("url", ["http://", "http://a:b@example.org/", "http://x\0y/", "http://[/"])
def test_url_that_is_none_is_refused(api: APIClient, fetching: None, url: str) -> None:
    response = ask(api, url)

    assert (response.status_code, response.json()["code"]) == (400, "url_invalid")


def test_repeated_request_fetches_nothing_again(
    api: APIClient, fetching: None, server: Listener
) -> None:
    server.answers = [wav_answer()]
    url = f"http://127.0.0.1:{server.port}/ada.wav"

    first = ask(api, url, {"Idempotency-Key": "k"})
    server.answers = [(500, {"Content-Length": "0"}, b"")]
    again = ask(api, url, {"Idempotency-Key": "k"})

    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json()["id"] == again.json()["id"]
    assert len(server.arrived) == 1


def test_nothing_is_fetched_for_a_job_that_is_refused_anyway(
    api: APIClient, fetching: None, server: Listener
) -> None:
    fields = {
        "text": "<|speaker:5|>Nobody has this voice.",
        "reference": {"audio": f"http://127.0.0.1:{server.port}/a.wav", "text": "What is said."},
    }

    assert api.post(URL, fields, format="json").json()["code"] == "speaker_unknown"
    assert server.arrived == []


def test_jobs_of_one_request_fetch_a_url_once_and_few_of_them(
    fetching: None, server: Listener
) -> None:
    server.answers = [wav_answer()]
    planner = Planner(None)
    make_voice("Ada")

    def plan(number: int) -> bytes | None:
        url = f"http://127.0.0.1:{server.port}/{number}.wav"
        order = Order(TEXT, reference=UrlClip(url, "What is said."))
        return planner.plan(order).references[0].content

    contents = [plan(number) for number in (*range(MAX_URLS_PER_REQUEST), 0, 1)]
    with pytest.raises(SubmitRejectedError) as caught:
        plan(MAX_URLS_PER_REQUEST)

    assert set(contents) == {clip_bytes("wav")}
    assert len(server.arrived) == MAX_URLS_PER_REQUEST
    assert (caught.value.code, caught.value.attr) == ("too_many_urls", "reference")
