"""'./tts serve' and './tts demo': web and worker under one command, from an empty folder."""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from argparse import ArgumentTypeError, Namespace
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import httpx
import pytest
import soundfile
from django.core.management import call_command
from pytest_django import Settings

from tests.workers import commands
from tests.workers.commands import (
    CLIP,
    DEMO,
    MAKE_KEY,
    PATIENCE_SECONDS,
    PROJECT,
    TRANSCRIPT,
    check_is_speech,
    child_pid,
    children_of,
    demo_rate,
    environment_for,
    one_object,
    run,
    run_python,
    start,
)
from ttsweb.commands.base import CommandError
from ttsweb.http.listen import ListenError
from workers.local.demo import clip_sources, open_socket
from workers.management.commands.serve import AUTO, port


@dataclass
class Serving:
    """A running `serve`, and a client that has a key."""

    process: subprocess.Popen[str]
    client: httpx.Client

    def post(self, address: str, **parts: Any) -> str:
        """Make something; return where it is."""
        answer = self.client.post(address, **parts)
        assert answer.status_code == 202, answer.text
        return answer.headers["Location"]

    def wait_for(self, address: str, status: str) -> str:
        """Return the address once what is there has the status."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (found := self.client.get(address).json())["status"] != status:
            assert found["status"] != "failed", found
            assert time.monotonic() < deadline, found
            time.sleep(0.2)
        return address

    def make_voice(self) -> None:
        data = {"name": "Ada", "transcript": TRANSCRIPT, "consent_statement": "Synthetic."}
        files = {"audio": ("clip.wav", CLIP.read_bytes(), "audio/wav")}
        self.wait_for(self.post("/api/v1/voices", data=data, files=files), "ready")

    def submit(self) -> str:
        body = {"text": "I saw the lamp.", "voice": "Ada", "format": "flac"}
        return self.post("/api/v1/jobs", json=body)


@pytest.fixture
def serving(clean_env: dict[str, str]) -> Iterator[Serving]:
    headers = {"Authorization": f"Bearer {run_python(clean_env, MAKE_KEY)}"}
    with (
        commands.serving(clean_env) as (process, said),
        httpx.Client(base_url=said["url"], headers=headers, timeout=60) as client,
    ):
        yield Serving(process, client)


def test_voice_and_job_by_http_end_in_audio_and_a_stop_leaves_nothing(serving: Serving) -> None:
    assert serving.client.get("/healthz").status_code == 200
    serving.make_voice()
    job = serving.wait_for(serving.submit(), "succeeded")
    whole = serving.client.get(f"{job}/audio")
    part = serving.client.get(f"{job}/audio", headers={"Range": "bytes=4-103"})
    serving.process.send_signal(signal.SIGINT)
    serving.process.wait(timeout=PATIENCE_SECONDS)
    assert (whole.status_code, part.status_code) == (200, 206)
    assert part.content == whole.content[4:104]
    audio, rate = soundfile.read(io.BytesIO(whole.content))
    assert rate == demo_rate() and len(audio) > rate // 2
    assert serving.process.returncode == 0
    assert children_of(serving.process.pid) == []


@pytest.mark.thorough
def test_worker_and_web_that_die_are_started_again(serving: Serving) -> None:
    serving.make_voice()
    os.kill(child_pid(serving.process.pid, "worker --role all"), signal.SIGKILL)
    job = serving.submit()
    os.kill(child_pid(serving.process.pid, "ttsweb.http.listen"), signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            serving.wait_for(job, "succeeded")
            break
        except httpx.TransportError:  # the connection that the killed process held
            assert time.monotonic() < deadline


def test_other_address_needs_allowed_hosts(settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
    with pytest.raises(CommandError, match=r"^allowed_hosts_missing: .*TTS_ALLOWED_HOSTS"):
        call_command("serve", "--host", "0.0.0.0", skip_checks=True)


@pytest.mark.parametrize("text", ["0", "65536", "-1", "http", "\uff11\uff12\uff13\uff14"])
def test_port_that_is_none_is_a_usage_error(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="not auto"):
        port(text)


def test_without_a_worker_only_the_web_runs(clean_env: dict[str, str]) -> None:
    with commands.serving(clean_env, "--no-worker") as (process, ready):
        [line] = children_of(process.pid)
        start_page = httpx.get(ready["url"], follow_redirects=True)
        style = httpx.get(f"{ready['url']}/static/admin/css/base.css")
    assert ready["worker"] is False
    assert "http.listen" in line
    assert start_page.status_code == 200
    assert style.status_code == 200, "static files come without a collecting step"


COUNTS = """
import django; django.setup()
from synth.models import RenderJob, Take
from voices.models import CodesCounter, Voice, VoiceVersion
print(Voice.objects.count(), VoiceVersion.objects.count(), RenderJob.objects.count(),
      RenderJob.objects.filter(status="succeeded").count(), Take.objects.count(),
      CodesCounter.objects.get(pk="encoder_run").value)
"""
CLOSED_STDIN = "import os, sys; os.close(0); os.execv(sys.executable, sys.argv[1:])"
FIELDS = {"voices", "wall_seconds", "encoder_runs", "checkpoint", "licence"}
NAMES = ["Clara", "Henry", "Alec"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of two runs in one data folder."""
    return environment_for(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def first(
    tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """The end of a first run, from a source that can't be written and without standard input."""
    source = tmp_path_factory.mktemp("source")
    left_out = shutil.ignore_patterns(".*", "data", "tests", "__pycache__")
    shutil.copytree(PROJECT, source, ignore=left_out, dirs_exist_ok=True)
    subprocess.run(["chmod", "-R", "a-w", str(source)], check=True)
    before = set(source.rglob("*"))
    command = [sys.executable, "-c", CLOSED_STDIN, sys.executable, "-P", str(source / "manage.py")]
    ended = subprocess.run(
        [*command, "demo", "--no-serve", "--json"],
        env=environment | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert set(source.rglob("*")) == before
    subprocess.run(["chmod", "-R", "u+w", str(source)], check=True)
    return ended


def test_first_run_prints_one_object_and_makes_three_files_and_nothing_else(
    first: subprocess.CompletedProcess[str], environment: dict[str, str]
) -> None:
    assert first.returncode == 0, first.stderr
    made = one_object(first.stdout)
    assert set(made) == FIELDS
    assert (made["encoder_runs"], made["checkpoint"]) == (3, "ttsweb demo")
    assert [one["voice"] for one in made["voices"]] == NAMES
    assert len({one["text"] for one in made["voices"]}) == 3
    out = Path(environment["TTS_DATA_DIR"]) / "out"
    assert {Path(one["audio_path"]) for one in made["voices"]} == set(out.iterdir())
    for one in made["voices"]:
        check_is_speech(Path(one["audio_path"]), seconds=(1.0, 8.0))
        info = soundfile.info(one["audio_path"])
        assert abs(info.duration - one["audio_seconds"]) < 0.01
        assert info.samplerate == demo_rate()
        assert 0 < one["wall_seconds"] < made["wall_seconds"]
    assert "user admin, password " in first.stderr


@pytest.mark.usefixtures("first")
def test_second_run_uses_the_first_and_its_curl_line_works(environment: dict[str, str]) -> None:
    with start(environment, "demo") as process:
        assert process.stdout is not None
        try:
            lines = [*takewhile(lambda line: "Ctrl-C" not in line, process.stdout)]
            printed = "".join(lines)
            counts = run_python(environment, COUNTS)
            curl = re.search(r"^Try +(curl .*)$", printed, re.MULTILINE)
            assert curl is not None, printed
            job = one_object(subprocess.check_output(["sh", "-c", curl[1]], text=True))
            key = re.search(r"Bearer (\S+)'", curl[1])
            url = re.search(r"http://[0-9.:]+", curl[1])
            assert key is not None and url is not None
            headers = {"Authorization": f"Bearer {key[1]}"}
            address = f"{url[0]}/api/v1/jobs/{job['id']}?wait=30"
            ended = httpx.get(address, headers=headers, timeout=40)
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE_SECONDS)

    assert "the codes of an earlier run are reused" in errors
    # voices, versions, jobs, those that succeeded, takes, encoder runs
    assert counts == "3 3 6 6 3 3"
    assert "password" not in errors + printed
    for name in NAMES:
        assert re.search(rf"^{name} +\S*{name}\.wav +\(\d+\.\d s of audio", printed, re.MULTILINE)
    assert "Model       ttsweb demo, licence Apache-2.0" in printed
    assert "not Fish Audio S2 Pro" in " ".join(printed.split())
    assert ended.json()["status"] == "succeeded"
    assert process.returncode == 0
    assert children_of(process.pid) == []


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


@pytest.mark.parametrize(("command", "asked"), [("demo", "setting"), ("serve", "option")])
def test_port_that_was_asked_for_and_is_taken_ends_the_command_at_once(
    settings: Settings, taken_port: int, command: str, asked: str
) -> None:
    arguments = ["--port", str(taken_port)] if asked == "option" else []
    settings.PORT = settings.PORT if arguments else taken_port
    printed = io.StringIO()
    with pytest.raises(CommandError, match=f"Port {taken_port} .*--port auto") as refused:
        call_command(command, "--json", *arguments, skip_checks=True, stdout=printed)
    error = one_object(printed.getvalue())["error"]
    assert (refused.value.returncode, error["code"]) == (1, "port_taken")
    assert f"Port {taken_port} on 127.0.0.1 is used" in error["message"]
    assert not (settings.DATA_DIR / "out").exists()


def test_only_the_port_that_nobody_chose_may_move_on(taken_port: int, settings: Settings) -> None:
    def opened(port: int | None) -> int:
        with open_socket(Namespace(host="127.0.0.1", port=port)) as listening:
            chosen: int = listening.getsockname()[1]
            return chosen

    with socket.socket() as holder:
        with suppress(OSError):  # another program's then, which is as good
            holder.bind(("127.0.0.1", settings.PORT))
            holder.listen()
        assert opened(None) > settings.PORT
        assert opened(AUTO) > settings.PORT
    with pytest.raises(ListenError) as caught:
        opened(taken_port)
    assert caught.value.code == "port_taken"


@pytest.mark.thorough
def test_worker_that_cannot_start_ends_the_demo(clean_env: dict[str, str], tmp_path: Path) -> None:
    broken = shutil.copytree(DEMO, tmp_path / "checkpoint")
    (broken / "codec.pth").unlink()
    ended = run(clean_env | {"TTS_CHECKPOINT": str(broken)}, "demo", "--no-serve", "--json")
    error = one_object(ended.stdout)["error"]
    assert (ended.returncode, error["code"]) == (1, "worker_failed")
    assert "codec" in error["message"]
    assert f"worker_failed: {error['message']}" in ended.stderr


OWN = {"voice_clip": Path("clip.wav"), "transcript": "Hello.", "consent": "It is mine."}


@pytest.mark.parametrize("left_out", OWN)
def test_parts_of_an_own_voice_belong_together(left_out: str) -> None:
    with pytest.raises(CommandError, match=f"--{left_out.replace('_', '-')}") as refused:
        clip_sources(Namespace(**OWN | {left_out: ""}, text=None))
    assert refused.value.returncode == 2
    [own] = clip_sources(Namespace(**OWN, text="Good morning."))
    assert (own.voice_name, own.text) == ("demo clip", "Good morning.")


def test_a_text_is_said_by_each_of_the_three_voices() -> None:
    sources = clip_sources(Namespace(**dict.fromkeys(OWN), text="Good."))
    assert [(one.voice_name, one.text) for one in sources] == [(name, "Good.") for name in NAMES]


@pytest.mark.redis
@pytest.mark.postgres
def test_demo_runs_on_services(
    clean_env: dict[str, str], redis_url: str, postgres_url: str
) -> None:
    environment = clean_env | {
        "TTS_DATABASE_URL": postgres_url,
        "TTS_REDIS_URL": redis_url,
        "TTS_SECRET_KEY": os.urandom(30).hex(),
    }
    ended = run(environment, "demo", "--no-serve", "--json", "--text", "I saw the lamp.")
    assert ended.returncode == 0, ended.stderr
    assert one_object(ended.stdout)["encoder_runs"] == 3
