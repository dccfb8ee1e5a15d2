"""Give the tests of this folder a real server with a real worker, and the official client."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

import openai
import pytest

from tests.workers.commands import (
    MAKE_KEY,
    PATIENCE_SECONDS,
    PROJECT,
    environment_for,
    run_python,
    start,
)

CLIP = PROJECT / "synth" / "demo" / "clips" / "ref_m3.wav"
TRANSCRIPT = "The thing had a strange look in the lamp light."


@dataclass(frozen=True)
class Serving:
    """Where the server is, and a key for it."""

    url: str
    key: str

    def client(self, **options: object) -> openai.OpenAI:
        """Return the official client, with what a person would set."""
        values: dict[str, object] = {"base_url": f"{self.url}/v1", "api_key": self.key}
        return openai.OpenAI(**(values | options))  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server with a worker on the built-in model, once for all tests."""
    environment = environment_for(tmp_path_factory.mktemp("openai"))
    environment |= {"TTS_OPENAI_VOICE_ALIASES": "alloy=Ada"}
    key = run_python(environment, MAKE_KEY)
    with start(environment, "serve", "--port", _free_port(), "--json") as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            made = Serving(url, key)
            _make_voice(made.client())
            yield made
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_SECONDS)


@pytest.fixture
def client(serving: Serving) -> openai.OpenAI:
    """The official client."""
    return serving.client()


def _make_voice(client: openai.OpenAI) -> None:
    """Make the voice Ada as the client does, and wait until it speaks."""
    voice = client.audio.voices.create(
        name="Ada",
        audio_sample=("clip.wav", CLIP.read_bytes(), "audio/wav"),
        consent="The voice is synthetic.",
        extra_body={"transcript": TRANSCRIPT},
    )
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        shown = client.get(f"/audio/voices/{voice.id}", cast_to=dict[str, object])
        if shown["status"] == "ready":
            return
        assert shown["status"] != "failed" and time.monotonic() < deadline, shown
        time.sleep(0.2)


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])
