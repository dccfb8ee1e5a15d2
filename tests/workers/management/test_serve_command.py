"""`./tts serve`: web and worker under one command, end to end over HTTP."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
import soundfile

from tests.workers.commands import (
    MAKE_KEY,
    PATIENCE_SECONDS,
    PROJECT,
    child_pid,
    children_of,
    run,
    run_python,
    start,
    wait_until_gone,
)

CLIP = PROJECT / "synth" / "demo" / "clips" / "ref_m3.wav"
TRANSCRIPT = "The thing had a strange look in the lamp light."


@dataclass
class Serving:
    """A running `serve`, and a client that has a key."""

    process: subprocess.Popen[str]
    client: httpx.Client

    def get(self, address: str, **headers: str) -> httpx.Response:
        """Ask for an address; a worker that is being started again takes its time."""
        return self.client.get(address, headers=headers)

    def wait_for(self, address: str, status: str) -> dict[str, str]:
        """Return the object at this address once it has the status."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found: dict[str, str] = self.get(address).json()
            if found["status"] == status:
                return found
            assert found["status"] != "failed", found
            assert time.monotonic() < deadline, found
            time.sleep(0.2)


@pytest.fixture
def serving(clean_env: dict[str, str]) -> Iterator[Serving]:
    key = run_python(clean_env, MAKE_KEY)
    with start(clean_env, "serve", "--port", str(free_port()), "--json") as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            headers = {"Authorization": f"Bearer {key}"}
            with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
                yield Serving(process, client)
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_SECONDS)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def create_voice(serving: Serving) -> str:
    answer = serving.client.post(
        "/api/v1/voices",
        data={"name": "Ada", "transcript": TRANSCRIPT, "consent_statement": "Synthetic."},
        files={"audio": ("clip.wav", CLIP.read_bytes(), "audio/wav")},
    )
    assert answer.status_code == 202, answer.text
    return answer.headers["Location"]


def create_job(serving: Serving, text: str) -> str:
    body = {"text": text, "voice": "Ada", "format": "flac"}
    answer = serving.client.post("/api/v1/jobs", json=body)
    assert answer.status_code == 202, answer.text
    return answer.headers["Location"]


def test_voice_and_job_by_http_end_in_audio_and_the_stop_leaves_no_process(
    serving: Serving,
) -> None:
    assert serving.get("/healthz").status_code == 200
    voice = create_voice(serving)
    serving.wait_for(voice, "ready")
    job = create_job(serving, "I saw the lamp.")
    serving.wait_for(job, "succeeded")
    whole = serving.get(f"{job}/audio")
    part = serving.get(f"{job}/audio", Range="bytes=4-103")

    serving.process.send_signal(signal.SIGINT)
    serving.process.wait(timeout=PATIENCE_SECONDS)

    assert (whole.status_code, part.status_code) == (200, 206)
    assert part.content == whole.content[4:104]
    audio, rate = soundfile.read(io.BytesIO(whole.content))
    assert rate == 44_100 and len(audio) > rate // 2
    assert serving.process.returncode == 0
    assert children_of(serving.process.pid) == []


@pytest.mark.thorough
def test_worker_and_web_that_die_are_started_again(serving: Serving) -> None:
    voice = create_voice(serving)
    serving.wait_for(voice, "ready")

    os.kill(child_pid(serving.process.pid, "worker --role all"), signal.SIGKILL)
    job = create_job(serving, "I saw the lamp.")
    os.kill(child_pid(serving.process.pid, "ttsweb.http.web_process"), signal.SIGKILL)

    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            serving.wait_for(job, "succeeded")
            break
        except httpx.TransportError:  # the connection that the killed process held
            assert time.monotonic() < deadline


@pytest.mark.thorough
def test_children_end_when_serve_is_killed(serving: Serving) -> None:
    pid = serving.process.pid
    assert len(children_of(pid)) == 2
    serving.process.kill()
    wait_until_gone(pid, seconds=40)


def test_other_address_needs_allowed_hosts(clean_env: dict[str, str]) -> None:
    ended = run(clean_env, "serve", "--host", "0.0.0.0", "--port", str(free_port()))
    assert ended.returncode == 1
    assert "allowed_hosts_missing: " in ended.stderr and "TTS_ALLOWED_HOSTS" in ended.stderr


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http", "\uff11\uff12\uff13\uff14"])
def test_port_that_is_none_is_a_usage_error(clean_env: dict[str, str], port: str) -> None:
    ended = run(clean_env, "serve", f"--port={port}")
    assert ended.returncode == 2
    assert "not auto" in ended.stderr


def test_without_a_worker_only_the_web_runs(clean_env: dict[str, str]) -> None:
    with start(clean_env, "serve", "--port", str(free_port()), "--no-worker", "--json") as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            lines = children_of(process.pid)
            start_page = httpx.get(ready["url"], follow_redirects=True)
            style = httpx.get(f"{ready['url']}/static/admin/css/base.css")
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_SECONDS)

    assert ready["worker"] is False
    assert len(lines) == 1 and "web_process" in lines[0]
    assert start_page.status_code == 200
    assert style.status_code == 200, "static files come without a collecting step"
