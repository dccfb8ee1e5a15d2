"""Give the tests of this folder a real server with a real worker, as a person sets it up once."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai
import pytest

from synth.card import CARD_NAME
from tests.api.served import free_port
from tests.clients.replay import Sent, replay
from tests.workers.commands import (
    CLIP,
    DEMO,
    MAKE_KEY,
    PATIENCE_SECONDS,
    TRANSCRIPT,
    environment_for,
    run_python,
    start,
)

# What an operator sets for clients that list voices without a key, or call from a browser.
SETTINGS = {"TTS_OPENAI_PUBLIC_VOICES": "true", "TTS_CORS_ORIGINS": "*"}


@dataclass(frozen=True)
class Serving:
    """Where the server is, and a key for it."""

    url: str
    key: str

    def client(self, **options: object) -> openai.OpenAI:
        """Return the official client, with what a person would set."""
        values: dict[str, object] = {"base_url": f"{self.url}/v1", "api_key": self.key}
        return openai.OpenAI(**(values | options))  # type: ignore[arg-type]

    def get(self, path: str) -> httpx.Response:
        """Ask our own API with the client's key."""
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.get(f"{self.url}/api/v1{path}", headers=headers, timeout=90)

    def replay(self, sent: Sent) -> httpx.Response:
        """Return the answer to a request of a client."""
        return replay(self.url, self.key, sent)

    @property
    def voice_id(self) -> str:
        """The id of the voice Ada."""
        voices = self.get("/voices?limit=100").json()["results"]
        return str(next(voice["id"] for voice in voices if voice["name"] == "Ada"))


@pytest.fixture(scope="session")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server with a worker on the built-in model, once for all tests of a process."""
    folder = tmp_path_factory.mktemp("clients")
    checkpoint = {"TTS_CHECKPOINT": str(_unscreened_checkpoint(folder))}
    environment = environment_for(folder) | SETTINGS | checkpoint
    key = run_python(environment, MAKE_KEY)
    with start(environment, "serve", "--port", free_port(), "--json") as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"].rstrip("/")
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


def _unscreened_checkpoint(folder: Path) -> Path:
    """Return the built-in model with a card that asks for no second takes.

    A listener may hear the first take of a text, and the file has the better one.
    """
    checkpoint = shutil.copytree(DEMO, folder / "checkpoint")
    card = checkpoint / CARD_NAME
    said = json.loads(card.read_text(encoding="utf-8")) | {"quality_screen": False}
    card.write_text(json.dumps(said), encoding="utf-8")
    return checkpoint


def _make_voice(client: openai.OpenAI) -> None:
    """Make the voice Ada as the client does, wait until it speaks, and let everybody use it."""
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
            break
        assert shown["status"] != "failed" and time.monotonic() < deadline, shown
        time.sleep(0.2)
    address = str(client.base_url.copy_with(path=f"/api/v1/voices/{voice.id}"))
    headers = {"Authorization": f"Bearer {client.api_key}"}
    httpx.patch(address, json={"shared": True}, headers=headers).raise_for_status()
