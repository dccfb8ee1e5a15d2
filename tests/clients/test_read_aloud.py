"""Read Aloud, which runs in a browser: js/tts-engines.js with an OpenAI compatible server."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Serving
from tests.clients.replay import KEY, TEXT, Sent, check_file

ORIGIN = "chrome-extension://hdhinadidafjejdhmfkjgnolgimiaplp"
BROWSER = {
    "Accept": "*/*",
    "Accept-Language": "en-US,en;q=0.9",
    "Origin": ORIGIN,
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/141.0.0.0",
    "Sec-Fetch-Dest": "empty",
    "Sec-Fetch-Mode": "cors",
    "Sec-Fetch-Site": "cross-site",
}
HEADERS = BROWSER | {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/v1/models", "authorization"),
        ("POST", "/v1/audio/speech", "authorization,content-type"),
    ],
)
def test_the_browser_is_told_that_it_may_ask(
    serving: Serving, method: str, path: str, headers: str
) -> None:
    asked = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": headers}
    answer = serving.replay(Sent("OPTIONS", path, BROWSER | asked))

    assert answer.status_code in {200, 204}
    assert answer.headers["access-control-allow-origin"] in {"*", ORIGIN}
    assert method in answer.headers["access-control-allow-methods"]
    allowed = answer.headers["access-control-allow-headers"].lower()
    assert all(name in allowed for name in headers.split(","))


def test_the_setup_lists_models(serving: Serving) -> None:
    answer = serving.replay(Sent("GET", "/v1/models", HEADERS))

    assert answer.headers["access-control-allow-origin"] in {"*", ORIGIN}
    assert all(model["id"] for model in answer.json()["data"])


@pytest.mark.parametrize(
    ("form", "codec", "content_type"),
    [("mp3", "mp3float", "audio/mpeg"), ("opus", "opus", "audio/ogg")],
)
def test_speech_may_be_read_by_the_extension(
    serving: Serving, form: str, codec: str, content_type: str
) -> None:
    body = {"model": "tts-1", "input": TEXT, "voice": "alloy", "response_format": form}
    answer = serving.replay(Sent("POST", "/v1/audio/speech", HEADERS, body))

    assert answer.headers["access-control-allow-origin"] in {"*", ORIGIN}
    check_file(answer, content_type, codec)


def test_an_error_may_be_read_by_the_extension(serving: Serving) -> None:
    body = {"model": "tts-1", "input": TEXT, "voice": "Nobody", "response_format": "mp3"}
    answer = serving.replay(Sent("POST", "/v1/audio/speech", HEADERS, body))

    assert answer.status_code == 404
    assert answer.headers["access-control-allow-origin"] in {"*", ORIGIN}
    assert answer.json()["error"]["message"]
