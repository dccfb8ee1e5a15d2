"""OpenAI's client in JavaScript: `base_url` and key are all that is set."""

from __future__ import annotations

import pytest

from tests.clients.conftest import Serving
from tests.clients.official import run_node_client
from tests.clients.replay import KEY, TEXT, Sent, check_file

VERSION = "7.57.0"
HEADERS = {
    "accept": "application/json",
    "accept-language": "*",
    "authorization": f"Bearer {KEY}",
    "content-type": "application/json",
    "sec-fetch-mode": "cors",
    "user-agent": f"OpenAI/JS {VERSION}",
    "x-stainless-arch": "x64",
    "x-stainless-lang": "js",
    "x-stainless-os": "Linux",
    "x-stainless-package-version": VERSION,
    "x-stainless-retry-count": "0",
    "x-stainless-runtime": "node",
    "x-stainless-runtime-version": "v20.19.2",
}
BODY = {"model": "tts-1", "voice": "alloy", "input": TEXT}

PROGRAM = """
const { default: OpenAI } = await import(require.resolve('openai'));
const client = new OpenAI({ baseURL: given.url + '/v1', apiKey: given.key, maxRetries: 0 });
const models = [];
for await (const model of client.models.list()) models.push(model.id);
const speech = { model: 'tts-1', voice: 'alloy', input: given.text };
const answer = await client.audio.speech.create({ ...speech, response_format: 'wav' });
const bytes = Buffer.from(await answer.arrayBuffer());
const failures = [];
for (const wrong of [{ voice: 'Nobody' }, { response_format: 'midi' }]) {
  try {
    await client.audio.speech.create({ ...speech, ...wrong });
  } catch (error) {
    const { status, code, param, type, message } = error;
    failures.push({ status, code, param, type, message, id: error.requestID });
  }
}
const found = { models, head: bytes.subarray(0, 4).toString(), size: bytes.length, failures };
console.log(JSON.stringify(found));
"""


def test_speech_comes_as_mp3(serving: Serving) -> None:
    headers = HEADERS | {"accept": "application/octet-stream"}
    answer = serving.replay(Sent("POST", "/v1/audio/speech", headers, BODY))

    check_file(answer, "audio/mpeg", "mp3float")
    assert answer.headers["x-request-id"]


def test_models_are_listed(serving: Serving) -> None:
    found = serving.replay(Sent("GET", "/v1/models", HEADERS)).json()

    assert found["object"] == "list"
    assert {"tts-1", "gpt-4o-mini-tts"} <= {model["id"] for model in found["data"]}


@pytest.mark.node_clients
def test_the_client_itself_speaks_and_names_its_errors(serving: Serving) -> None:
    found = run_node_client(PROGRAM, url=serving.url, key=serving.key, text=TEXT)

    assert "tts-1" in found["models"]
    assert found["head"] == "RIFF" and found["size"] > 10_000
    voice, form = found["failures"]
    assert (voice["status"], voice["code"], voice["param"]) == (404, "voice_not_found", "voice")
    assert (form["status"], form["param"]) == (400, "response_format")
    assert all(one["id"] and one["message"] for one in found["failures"])
