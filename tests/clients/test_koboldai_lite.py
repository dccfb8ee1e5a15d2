"""KoboldAI Lite, which runs in a browser: `OpenAI-Compat. API Server` in index.html."""

from __future__ import annotations

from tests.clients.conftest import Serving
from tests.clients.replay import KEY, TEXT, Sent, check_file

ORIGIN = "https://lite.koboldai.net"
BROWSER = {
    "Accept": "*/*",
    "Origin": ORIGIN,
    "Referer": f"{ORIGIN}/",
    "User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0",
}
PATH = "/v1/audio/speech"


def test_the_browser_asks_first_and_then_hears(serving: Serving) -> None:
    asked = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    allowed = serving.replay(Sent("OPTIONS", PATH, BROWSER | asked))
    headers = BROWSER | {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    body = {"model": "tts-1", "input": TEXT, "voice": "alloy"}
    answer = serving.replay(Sent("POST", PATH, headers, body))

    assert allowed.status_code in {200, 204}
    assert "authorization" in allowed.headers["access-control-allow-headers"].lower()
    assert answer.headers["access-control-allow-origin"] in {"*", ORIGIN}
    check_file(answer, "audio/mpeg", "mp3float")


def test_a_text_without_a_word_is_a_file_too(serving: Serving) -> None:
    headers = BROWSER | {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    body = {"model": "tts-1", "input": "***", "voice": "alloy"}
    answer = serving.replay(Sent("POST", PATH, headers, body))

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "audio/mpeg"
    assert len(answer.content) > 100
