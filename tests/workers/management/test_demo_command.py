"""`./tts demo`: from an empty folder to an audio file, by the real queue and a real worker."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import soundfile
from django.conf import settings

from tests.workers.commands import (
    PATIENCE_SECONDS,
    PROJECT,
    check_is_speech,
    children_of,
    environment_for,
    one_object,
    run,
    run_python,
    start,
)
from ttsweb.http.listen import ListenError
from workers.local.demo import open_socket
from workers.management.commands.serve import AUTO

COUNTS = """
import django; django.setup()
from synth.models import RenderJob, Take
from voices.models import CodesCounter, Voice, VoiceVersion
print(Voice.objects.count(), VoiceVersion.objects.count(), RenderJob.objects.count(),
      RenderJob.objects.filter(status="succeeded").count(), Take.objects.count(),
      CodesCounter.objects.get(pk="encoder_run").value)
"""
CLOSED_STDIN = "import os, sys; os.close(0); os.execv(sys.executable, sys.argv[1:])"
FIELDS = {"audio_path", "audio_seconds", "wall_seconds", "encoder_runs", "checkpoint", "licence"}


@dataclass
class TwoRuns:
    """What two runs in one data folder said, and what they left."""

    first: subprocess.CompletedProcess[str]
    second: subprocess.CompletedProcess[str]
    environment: dict[str, str]
    source_before: set[Path]
    source_after: set[Path]


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoRuns]:
    """Run twice: from a source folder that can't be written and without standard input, then so."""
    folder = tmp_path_factory.mktemp("demo")
    environment = environment_for(folder)
    source = folder / "source"
    left_out = shutil.ignore_patterns(".*", "data", "tests", "__pycache__")
    shutil.copytree(PROJECT, source, ignore=left_out)
    subprocess.run(["chmod", "-R", "a-w", str(source)], check=True)
    before = set(source.rglob("*"))
    python = [sys.executable, "-P", str(source / "manage.py"), "demo", "--no-serve", "--json"]
    first = subprocess.run(
        [sys.executable, "-c", CLOSED_STDIN, *python],
        env=environment | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    after = set(source.rglob("*"))
    yield TwoRuns(first, run(environment, "demo", "--no-serve"), environment, before, after)
    subprocess.run(["chmod", "-R", "u+w", str(source)], check=True)


def test_first_run_prints_one_object_and_makes_speech_and_no_other_file(two_runs: TwoRuns) -> None:
    assert two_runs.first.returncode == 0, two_runs.first.stderr
    made = one_object(two_runs.first.stdout)
    assert set(made) == FIELDS
    assert (made["encoder_runs"], made["checkpoint"]) == (1, "ttsweb demo")
    path = Path(made["audio_path"])
    assert path.parent == Path(two_runs.environment["TTS_DATA_DIR"]) / "out"
    check_is_speech(path, seconds=(3.0, 12.0))
    assert abs(soundfile.info(path).duration - made["audio_seconds"]) < 0.01
    assert "user admin, password " in two_runs.first.stderr
    assert two_runs.source_after == two_runs.source_before


def test_second_run_uses_the_voice_and_the_takes_of_the_first(two_runs: TwoRuns) -> None:
    assert two_runs.second.returncode == 0, two_runs.second.stderr
    assert "the codes of an earlier run are reused" in two_runs.second.stderr
    # voices, versions, jobs, those that succeeded, takes, encoder runs
    assert run_python(two_runs.environment, COUNTS) == "3 3 2 2 3 3"
    assert "password" not in two_runs.second.stderr + two_runs.second.stdout
    assert "demo.wav" in two_runs.second.stdout
    assert "Model       ttsweb demo, licence Apache-2.0" in two_runs.second.stdout
    assert "not Fish Audio S2 Pro" in " ".join(two_runs.second.stdout.split())


def test_demo_serves_on_the_next_port_and_its_curl_line_works_as_printed(
    clean_env: dict[str, str],
) -> None:
    with start(clean_env, "demo", "--text", "I saw the lamp.") as process:
        try:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line)
                if "Ctrl-C" in line:
                    break
            printed = "".join(lines)
            curl = re.search(r"^Try +(curl .*)$", printed, re.MULTILINE)
            assert curl is not None, printed
            answer = subprocess.run(
                ["sh", "-c", curl[1]], capture_output=True, text=True, check=True
            )
            job = one_object(answer.stdout)
            key = re.search(r"Bearer (\S+)'", curl[1])
            url = re.search(r"http://[0-9.:]+", curl[1])
            assert key is not None and url is not None
            ended = httpx.get(
                f"{url[0]}/api/v1/jobs/{job['id']}?wait=30",
                headers={"Authorization": f"Bearer {key[1]}"},
                timeout=40,
            )
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_SECONDS)

    assert ended.json()["status"] == "succeeded"
    assert "not Fish Audio S2 Pro" in " ".join(printed.split())
    assert process.returncode == 0
    assert children_of(process.pid) == []


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


@pytest.mark.parametrize("command", ["demo", "serve"])
@pytest.mark.parametrize("asked", ["option", "setting"])
def test_port_that_was_asked_for_and_is_taken_ends_the_command_at_once(
    clean_env: dict[str, str], taken_port: int, command: str, asked: str
) -> None:
    arguments = ["--port", str(taken_port)] if asked == "option" else []
    environment = clean_env | ({} if arguments else {"TTS_PORT": str(taken_port)})
    ended = run(environment, command, "--json", *arguments)
    assert ended.returncode == 1
    error = one_object(ended.stdout)["error"]
    assert error["code"] == "port_taken"
    assert f"Port {taken_port} on 127.0.0.1 is used" in error["message"]
    assert f"Port {taken_port}" in ended.stderr and "--port auto" in ended.stderr
    assert not (Path(clean_env["TTS_DATA_DIR"]) / "out").exists()


def test_only_the_port_that_nobody_chose_may_move_on(taken_port: int) -> None:
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


def test_worker_that_cannot_start_ends_the_demo_with_code_and_sentence(
    clean_env: dict[str, str], tmp_path: Path
) -> None:
    broken = tmp_path / "checkpoint"
    shutil.copytree(PROJECT / "synth" / "demo", broken)
    (broken / "codec.pth").unlink()

    ended = run(clean_env | {"TTS_CHECKPOINT": str(broken)}, "demo", "--no-serve", "--json")

    assert ended.returncode == 1
    error = one_object(ended.stdout)["error"]
    assert error["code"] == "worker_failed"
    assert "codec" in error["message"]
    assert f"worker_failed: {error['message']}" in ended.stderr


def test_clip_that_is_no_audio_ends_the_demo_with_code_and_sentence(
    clean_env: dict[str, str], tmp_path: Path
) -> None:
    clip = tmp_path / "clip.wav"
    clip.write_text("Not audio at all.")
    arguments = ["--voice-clip", str(clip), "--transcript", "Hello.", "--consent", "It is mine."]
    ended = run(clean_env, "demo", "--no-serve", *arguments)
    assert ended.returncode == 1
    assert "clip_not_audio: " in ended.stderr


@pytest.mark.parametrize("left_out", ["--voice-clip", "--transcript", "--consent"])
def test_parts_of_an_own_voice_belong_together(clean_env: dict[str, str], left_out: str) -> None:
    given = {"--voice-clip": "clip.wav", "--transcript": "Hello.", "--consent": "It is mine."}
    del given[left_out]
    arguments = [word for pair in given.items() for word in pair]
    ended = run(clean_env, "demo", "--no-serve", *arguments)
    assert ended.returncode == 2
    assert left_out in ended.stderr


@pytest.mark.redis
@pytest.mark.postgres
def test_demo_runs_on_redis_and_postgresql(
    clean_env: dict[str, str], redis_url: str, postgres_url: str
) -> None:
    environment = clean_env | {
        "TTS_DATABASE_URL": postgres_url,
        "TTS_REDIS_URL": redis_url,
        "TTS_SECRET_KEY": os.urandom(30).hex(),
    }
    ended = run(environment, "demo", "--no-serve", "--json", "--text", "I saw the lamp.")
    assert ended.returncode == 0, ended.stderr
    assert one_object(ended.stdout)["encoder_runs"] == 1
