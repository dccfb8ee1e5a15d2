"""Read how a request was refused, and what of it was ignored."""

from __future__ import annotations

from typing import Any


def refusal_of(answer: Any) -> tuple[int, str]:
    """Return status and code of a refusal in any dialect; the code of another answer is empty."""
    if answer.status_code < 400:
        return answer.status_code, ""
    body = answer.json() if answer.content else {}
    if "error" in body:  # OpenAI's
        return answer.status_code, str(body["error"]["code"])
    if isinstance(body.get("detail"), dict):  # ElevenLabs'
        return answer.status_code, str(body["detail"]["status"])
    if "message" not in body:  # in which Fish's have their sentence
        assert answer.headers["Content-Type"] == "application/problem+json", body
    return answer.status_code, str(body.get("code", ""))


def ignored_of(answer: Any) -> str:
    """Return the names of the fields that were ignored, as the header has them."""
    return str(answer.headers.get("X-TTS-Ignored", ""))
