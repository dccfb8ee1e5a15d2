"""The client as a program uses it: voices, jobs, waits; what its import loads."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.ttsweb.client.faulty_server import FaultyServer, json_answer, problem
from ttsweb.client import Client, Clip, NotFoundError, VoiceFailedError, WaitTimeoutError

ID = "5b0f4a0e-0d53-4bbb-8ad1-3f4e4b1b2f11"


def test_import_loads_neither_django_nor_celery_nor_torch(clean_env: dict[str, str]) -> None:
    code = (
        "import sys, ttsweb.client\n"
        "walls = ('django', 'celery', 'kombu', 'torch', 'rest_framework', 'ttsweb.settings')\n"
        "print([name for name in walls if name in sys.modules])"
    )
    del clean_env["DJANGO_SETTINGS_MODULE"]

    ended = subprocess.run(
        [sys.executable, "-c", code], env=clean_env, capture_output=True, text=True, check=True
    )

    assert ended.stdout.strip() == "[]"


def test_job_is_made_of_a_text_a_voice_and_the_options_that_were_given(
    client: Client, faulty: FaultyServer
) -> None:
    client.jobs.create("Hé\n", voice="Ada", format="mp3", seed=7)
    request = faulty.requests[0]
    assert (request.method, request.path) == ("POST", "/api/v1/jobs")
    assert json.loads(request.body) == {
        "text": "Hé\n", "voice": "Ada", "format": "mp3", "seed": 7,
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["job", "batch", "book", "book batch"])
def test_repeated_key_returns_what_was_made_first(
    client: Client, faulty: FaultyServer, tmp_path: Path, kind: str
) -> None:
    book = tmp_path / "book.txt"
    book.write_text("Some words.")
    create: dict[str, Callable[[], Mapping[str, Any]]] = {
        "job": lambda: client.jobs.create("Hi.", voice="Ada", idempotency_key="k"),
        "batch": lambda: client.batches.submit([{"text": "Hi."}], idempotency_key="k"),
        "book": lambda: client.books.upload(book, idempotency_key="k"),
        "book batch": lambda: client.book_batches.create([{"file": "a"}], idempotency_key="k"),
    }
    faulty.script = [json_answer({"id": ID}, 202), json_answer({"id": ID}, 200)]

    first, again = create[kind](), create[kind]()

    assert first["id"] == again["id"] == ID
    assert [one.headers["idempotency-key"] for one in faulty.requests] == ["k", "k"]


def test_reference_is_uploaded_with_its_text(
    client: Client, faulty: FaultyServer, tmp_path: Path
) -> None:
    path = tmp_path / "ada.wav"
    path.write_bytes(b"RIFF\x00sound")
    client.jobs.create("Hello.", reference=Clip(path, "What is said."), seed=7)

    body = faulty.requests[0].body
    assert b'name="reference_audio"; filename="ada.wav"' in body and b"RIFF\x00sound" in body
    assert b'name="reference_text"\r\n\r\nWhat is said.' in body
    assert b'name="seed"\r\n\r\n7\r\n' in body


def test_voices_and_clips_are_sent_by_the_numbers_of_their_speakers(
    client: Client, faulty: FaultyServer
) -> None:
    client.jobs.create(
        "Hello.",
        voices={0: "Ada", 12: "Bob"},
        references={3: Clip(b"RIFF", "What is said.")},
        pauses={"sentence": 10},
        normalise=True,
    )

    assert json.loads(faulty.requests[0].body) == {
        "text": "Hello.",
        "voices": {"0": "Ada", "12": "Bob"},
        "references": {
            "3": {"audio": "data:application/octet-stream;base64,UklGRg==", "text": "What is said."}
        },
        "pauses": {"sentence": 10},
        "normalise": True,
    }


def test_options_beside_an_uploaded_clip_are_spelled_as_the_server_reads_them(
    client: Client, faulty: FaultyServer
) -> None:
    client.jobs.create(
        "Hello.",
        reference=Clip(b"RIFF", "What is said."),
        voices={1: "Bö"},
        lexicons=["Names"],
        live=True,
        retention="forever",
        loudness=-16.5,
    )

    body = faulty.requests[0].body.decode()
    for name, value in (
        ("voices", '{"1": "Bö"}'),
        ("lexicons", '["Names"]'),
        ("live", "true"),
        ("retention", "forever"),
        ("loudness", "-16.5"),
    ):
        assert f'name="{name}"\r\n\r\n{value}\r\n' in body


def test_job_is_changed_by_what_was_given_alone(client: Client, faulty: FaultyServer) -> None:
    job_id = "7b6b1de4-6f2c-4a3c-9e0a-111111111111"
    client.jobs.change(job_id, priority="bulk", deadline=None)
    request = faulty.requests[0]
    assert (request.method, request.path) == ("PATCH", f"/api/v1/jobs/{job_id}")
    assert json.loads(request.body) == {"priority": "bulk", "deadline": None}


def test_voice_is_made_of_all_its_clips(client: Client, faulty: FaultyServer) -> None:
    client.voices.create("Ada", [Clip(b"one", "First."), Clip(b"two", "Second.")], consent="Yes.")
    body = faulty.requests[0].body
    assert body.count(b'name="audio"') == body.count(b'name="transcript"') == 2
    assert body.index(b"First.") < body.index(b"Second.")
    assert b'name="consent_statement"\r\n\r\nYes.' in body


def test_voice_is_the_one_that_the_server_takes_a_name_for(
    client: Client, faulty: FaultyServer
) -> None:
    found = [{"id": "1", "name": "Grace"}, {"id": "2", "name": "Ada"}]
    pages: tuple[list[dict[str, str]], ...] = ([found[1]], [], found)
    faulty.script = [json_answer({"next": None, "results": page}) for page in pages]

    assert client.voices.find("ADA")["id"] == "2"
    assert "means=ADA" in faulty.requests[0].path
    with pytest.raises(NotFoundError, match=r"'Linus'\. There are: Ada, Grace\.") as caught:
        client.voices.find("Linus")
    assert caught.value.code == "voice_not_found"


def test_wait_for_a_voice_ends_when_it_is_ready_or_failed(
    client: Client, faulty: FaultyServer, pauses: list[float]
) -> None:
    states = [{"name": "Ada", "status": status} for status in ("pending", "encoding", "ready")]
    faulty.script = [json_answer(state, Retry_After="3") for state in states]
    seen: list[str] = []
    client.voices.wait_ready(ID, on_update=lambda voice: seen.append(voice["status"]))

    assert seen == ["pending", "encoding", "ready"]
    assert [one.path for one in faulty.requests] == [f"/api/v1/voices/{ID}?wait=1.000"] * 3
    assert len(pauses) == 2 and all(0 < pause <= 1 for pause in pauses), "it answered at once"
    failed = {"status": "failed", "error_code": "clip_silent", "error_message": "No sound."}
    faulty.script = [json_answer(failed)]
    with pytest.raises(VoiceFailedError, match="No sound") as caught:
        client.voices.wait_ready(ID)
    assert caught.value.code == "clip_silent"


def test_wait_for_a_job_survives_a_server_that_is_started_again(
    client: Client, faulty: FaultyServer, pauses: list[float]
) -> None:
    running, ended = {"id": ID, "status": "running"}, {"id": ID, "status": "partial"}
    faulty.script = [
        json_answer(running),
        *[problem(503, "starting") for _ in range(8)],
        json_answer(ended),
    ]

    assert client.jobs.wait(ID)["status"] == "partial"

    assert len(pauses) == 9, "more than the usual three repetitions"


def test_wait_asks_the_server_to_wait_and_never_spins(
    client: Client, faulty: FaultyServer, pauses: list[float]
) -> None:
    running, ended = {"id": ID, "status": "running"}, {"id": ID, "status": "succeeded"}
    faulty.script = [json_answer(running, Retry_After="2"), json_answer(ended)]

    client.jobs.wait(ID)
    client.jobs.wait(ID, on_update=lambda job: None)

    paths = [request.path for request in faulty.requests]
    assert paths[0] == f"/api/v1/jobs/{ID}?wait=25.000" and paths[-1].endswith("?wait=1.000")
    assert len(pauses) == 1 and 1 < pauses[0] <= 2, "the server answered at once"


def test_time_of_a_wait_is_bounded(client: Client, faulty: FaultyServer) -> None:
    faulty.script = [json_answer({"id": ID, "name": "Ada", "status": "running"})]
    with pytest.raises(WaitTimeoutError):
        client.jobs.wait(ID, timeout=0.05)
    with pytest.raises(WaitTimeoutError):
        client.voices.wait_ready(ID, timeout=0.05)


@pytest.mark.parametrize("wrong", ["", "..", "1/../../voices", "Ada", "?x=1"])
def test_what_is_no_id_reaches_no_address(client: Client, faulty: FaultyServer, wrong: str) -> None:
    for call in (client.jobs.get, client.jobs.delete, client.voices.delete, client.jobs.cancel):
        with pytest.raises(NotFoundError, match="is not the id of a"):
            call(wrong)
    assert faulty.requests == []
