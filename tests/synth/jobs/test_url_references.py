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
from tests.answers import refusal_of
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
    """A server on 127.0.0.1 that has a clip."""
    content = clip_bytes("wav")
    headers = {"Content-Type": "text/plain", "Content-Length": str(len(content))}
    with listening() as listener:
        listener.answers = [(200, headers, content)]
        yield listener


@pytest.fixture
def url(server: Listener) -> str:
    return f"http://127.0.0.1:{server.port}/ada.wav"


@pytest.fixture
def fetching(settings: Settings) -> None:
    """Fetch URLs, private ones too."""
    settings.URL_REFERENCES = True
    settings.ALLOW_PRIVATE_URLS = True


def ask(api: APIClient, audio: object, headers: dict[str, str] | None = None) -> Any:
    fields = {"text": TEXT, "reference": {"audio": audio, "text": "What is said."}}
    return api.post(URL, fields, format="json", headers=headers)


def test_clip_is_fetched_and_pinned_to_the_job(
    api: APIClient, fetching: None, server: Listener
) -> None:
    response = ask(api, f"http://127.0.0.1:{server.port}/clips/my%20ada.wav?x=1")

    assert response.status_code == 202, response.json()
    clip = VoiceVersion.objects.get(voice=None).clips.get()
    assert (clip.filename, clip.transcript) == ("my ada.wav", "What is said.")
    assert clip.stored.size_bytes == len(clip_bytes("wav"))


def test_nothing_is_fetched_in_any_way_unless_the_operator_turned_it_on(
    api: APIClient, settings: Settings, server: Listener, url: str
) -> None:
    settings.ALLOW_PRIVATE_URLS = True

    assert refusal_of(ask(api, url)) == (400, "url_references_off")
    with pytest.raises(SubmitRejectedError) as caught:
        Planner(None).plan(Order(TEXT, reference=UrlClip(url, "Said.")))

    assert (status_of(caught.value), caught.value.code) == (400, "url_references_off")
    assert server.arrived == []


def test_own_network_is_not_reached_where_urls_are_fetched(
    api: APIClient, settings: Settings, server: Listener, url: str
) -> None:
    settings.URL_REFERENCES = True

    response = ask(api, url)

    assert refusal_of(response) == (400, "url_private_address")
    assert response.json()["errors"][0]["attr"] == "reference"
    assert server.arrived == []
    assert not RenderJob.objects.exists()


def test_url_without_a_clip_is_refused(
    api: APIClient, fetching: None, server: Listener, url: str, settings: Settings
) -> None:
    settings.MAX_CLIP_BYTES = 5000
    answers: list[tuple[Any, int, str]] = [
        ((404, {"Content-Length": "0"}, b""), 400, "url_status"),
        ((200, {"Content-Length": "9"}, b"some text"), 400, "clip_not_audio"),
        ((200, {"Content-Length": "0"}, b""), 400, "clip_empty"),
        ((200, {"Content-Length": "9999"}, b"x" * 9999), 413, "url_too_large"),
        ((302, {"Location": "file:///etc/passwd", "Content-Length": "0"}, b""), 400, "url_scheme"),
    ]
    for answer, status, code in answers:
        server.answers = [answer]
        assert refusal_of(ask(api, url)) == (status, code)
    assert not StoredClip.objects.exists()


def test_path_of_a_file_is_never_taken(api: APIClient, fetching: None) -> None:
    audios: list[Any] = [
        "/etc/passwd", "file:///etc/passwd", "file://localhost/etc/passwd", "ada.wav",
        "../ada.wav", "C:\\ada.wav", "\\\\host\\ada.wav", "data:,x", "gopher://x/", "//host/a.wav",
        " http://example.org/a.wav", "", 5, None, [], {},
    ]  # fmt: skip
    for audio in audios:
        response = ask(api, audio)
        assert response.status_code == 400, audio
        assert response.json()["errors"][0]["attr"] == "reference.audio", audio


def test_url_that_is_none_is_refused(api: APIClient, fetching: None) -> None:
    for url in ("http://", "http://a:b@example.org/", "http://x\0y/", "http://[/"):
        assert refusal_of(ask(api, url)) == (400, "url_invalid"), url


def test_repeated_request_fetches_nothing_again(
    api: APIClient, fetching: None, server: Listener, url: str
) -> None:
    first = ask(api, url, {"Idempotency-Key": "k"})
    server.answers = [(500, {"Content-Length": "0"}, b"")]
    again = ask(api, url, {"Idempotency-Key": "k"})

    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json()["id"] == again.json()["id"]
    assert len(server.arrived) == 1


def test_nothing_is_fetched_for_a_job_that_is_refused_anyway(
    api: APIClient, fetching: None, server: Listener, url: str
) -> None:
    reference = {"audio": url, "text": "What is said."}
    fields = {"text": "<|speaker:5|>Nobody has this voice.", "reference": reference}

    assert api.post(URL, fields, format="json").json()["code"] == "speaker_unknown"
    assert server.arrived == []


def test_jobs_of_one_request_fetch_a_url_once_and_few_of_them(
    fetching: None, server: Listener
) -> None:
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
