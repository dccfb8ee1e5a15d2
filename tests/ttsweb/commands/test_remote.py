"""Which server commands talk to, and what they say when it is not right."""

from __future__ import annotations

import io
import json

import pytest

from ttsweb import settings
from ttsweb.client import ApiError, ServerUnreachableError
from ttsweb.commands.base import CommandError, Output, StepError
from ttsweb.commands.remote_command import open_client, reporting_remote_errors, server_url


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8123"), ("0.0.0.0", "http://127.0.0.1:8123"),
        ("::", "http://[::1]:8123"), ("::1", "http://[::1]:8123"),
        ("192.168.1.20", "http://192.168.1.20:8123"), ("localhost", "http://localhost:8123"),
    ],
)  # fmt: skip
def test_without_an_address_it_is_the_server_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, host: str, url: str
) -> None:
    monkeypatch.setattr(settings, "SERVER_URL", None)
    monkeypatch.setattr(settings, "HOST", host)
    monkeypatch.setattr(settings, "PORT", 8123)
    assert server_url() == url


def test_address_that_is_set_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "SERVER_URL", "https://tts.example.org/speech")
    assert server_url() == "https://tts.example.org/speech"


def test_missing_key_names_the_server_and_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "SERVER_URL", "https://tts.example.org")
    monkeypatch.setattr(settings, "API_KEY", None)
    with pytest.raises(StepError, match=r"https://tts\.example\.org.*create_key") as caught:
        open_client()
    assert caught.value.code == "api_key_missing"


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (ServerUnreachableError("server_unreachable", "No answer."), "server_unreachable", "serve"),
        (ApiError(409, "job_not_finished", "Not yet."), "job_not_finished", "--follow"),
        (FileNotFoundError(2, "No such file", "a.wav"), "file_error", "a.wav: No such file."),
    ],
)
def test_error_is_told_with_what_to_do_and_as_an_object(
    monkeypatch: pytest.MonkeyPatch, error: Exception, code: str, words: str
) -> None:
    monkeypatch.setattr(settings, "SERVER_URL", None)
    printed = io.StringIO()

    with (
        pytest.raises(CommandError, match=f"^{code}: ") as caught,
        reporting_remote_errors(Output(printed), as_json=True),
    ):
        raise error

    assert words in str(caught.value)
    assert json.loads(printed.getvalue())["error"]["code"] == code
