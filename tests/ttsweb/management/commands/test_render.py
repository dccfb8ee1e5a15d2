"""'./tts render' and './tts say' against a real server, and the client of the README."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.ttsweb.management.commands.conftest import Live
from tests.workers.commands import (
    CLIP,
    PATIENCE_SECONDS,
    PROJECT,
    check_is_speech,
    one_object,
    run,
    start,
)

LONG = "I saw the lamp in the long room. I came back to the long room. " * 600


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    first, second = tmp_path / "one.txt", tmp_path / "two.md"
    first.write_text("\ufeffI saw the lamp.", encoding="utf-8")
    second.write_text("It was in the long room.", encoding="utf-8")
    return [str(first), str(second)]


def newest_job(live: Live, words: str) -> str:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        for job in live.client.jobs.list(status="queued,running"):
            if job["text_start"].startswith(words):
                return job["id"]
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_each_file_becomes_an_audio_file(live: Live, texts: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "new" / "audio"
    arguments = ["--voice", "Ada", "--out", folder, "--format", "flac", "--follow", "--json"]
    ended = live.call("render", *texts, *arguments)
    assert (ended.returncode, ended.stderr) == (0, ""), "bars are for terminals"
    answer = one_object(ended.stdout)["jobs"]
    assert [(row["file"], row["status"]) for row in answer] == [(t, "succeeded") for t in texts]
    assert sorted(path.name for path in folder.iterdir()) == ["one.flac", "two.flac"]
    check_is_speech(folder / "one.flac", seconds=(0.3, 5.0))
    assert live.client.jobs.get(answer[0]["job"])["priority"] == "bulk"


def test_options_and_speakers_reach_the_server_and_the_file(live: Live, tmp_path: Path) -> None:
    path = tmp_path / "dialog.txt"
    path.write_text("I saw the lamp. <|speaker:2|>It was in the long room.", encoding="utf-8")
    options = ["--format", "opus", "--bit-rate", "32k", "--sample-rate", "24000"]
    options += ["--loudness", "-18", "--language", "en-gb", "--pause", "speaker=0"]
    options += ["--deadline", "10m", "--retention", "2h", "--priority", "interactive"]
    options += ["--voice", "Ada", "--voice", "2=ada", "--out", str(tmp_path), "--follow", "--json"]
    answer = one_object(live.done("render", path, *options))
    job = live.client.jobs.get(answer["jobs"][0]["job"])
    assert [(one["speaker"], one["name"]) for one in job["voices"]] == [(0, "Ada"), (2, "Ada")]
    assert (job["format"], job["bit_rate"], job["sample_rate"]) == ("opus", 32_000, 24_000)
    assert (job["loudness"], job["language"], job["retention"]) == (-18, "en-GB", 7200)
    assert (job["pauses"], job["priority"]) == ({"speaker": 0}, "interactive")
    assert job["deadline"] is not None
    check_is_speech(tmp_path / "dialog.opus", seconds=(0.6, 10.0))


def test_without_follow_the_line_that_fetches_the_audio_is_printed_and_works(
    live: Live, texts: list[str], tmp_path: Path
) -> None:
    folder = tmp_path / "a folder"
    printed = live.done("render", texts[0], "--voice", "Ada", "--out", folder)
    label, _, line = printed.strip().partition("  ")
    words = shlex.split(line)
    assert (label, words[:2]) == (texts[0], ["./tts", "jobs"])
    live.done("jobs", *words[2:])
    check_is_speech(folder / "one.wav", seconds=(0.3, 5.0))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_tells_the_way_back(live: Live, tmp_path: Path, number: signal.Signals) -> None:
    words = f"It was number {int(number)}."
    path = tmp_path / "long.txt"
    path.write_text(f"{words} {LONG}", encoding="utf-8")
    arguments = [str(path), "--voice", "Ada", "--out", str(tmp_path), "--follow", "--json"]

    with start(live.environment, "render", *arguments) as process:
        job_id = newest_job(live, words)
        process.send_signal(number)
        output, errors = process.communicate(timeout=PATIENCE_SECONDS)

    job = live.client.jobs.get(job_id)
    live.client.jobs.delete(job_id)
    line = f"./tts jobs download {job_id} --follow -o {tmp_path / 'long.wav'}"
    assert process.returncode == 130
    assert line in errors
    assert one_object(output) == {"detached": [{"job": job_id, "come_back": line}]}
    assert job["status"] in ("queued", "running") and not job["cancel_requested"]
    assert [found.name for found in tmp_path.iterdir()] == ["long.txt"]


def test_text_that_the_server_refuses_is_named_and_one_that_cannot_be_read_before_all(
    live: Live, texts: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "wrong.txt"
    jobs = len(list(live.client.jobs.list()))
    for content, code, made in (
        (None, "file_error", 0), (b"caf\xe9", "text_not_utf8", 0), (b" \n", "text_empty", 0),
        (b"binary\x00text", "text_", 1),
    ):  # fmt: skip
        if content is not None:
            path.write_bytes(content)
        ended = live.call("render", texts[0], path, "--voice", "Ada", "--json")
        error = one_object(ended.stdout)["error"]
        assert ended.returncode == 1
        assert error["code"].startswith(code) and str(path) in error["message"], content
        assert len(list(live.client.jobs.list())) == jobs + made
    assert "--follow -o one.wav" in ended.stderr, "what was queued can be fetched"


def test_say_speaks_on_the_server(live: Live, tmp_path: Path) -> None:
    target = tmp_path / "new" / "out.flac"
    ended = run(live.environment, "say", "I saw it.", "--voice", "ADA", "-o", target, "--json")
    assert ended.returncode == 0, ended.stderr
    answer = one_object(ended.stdout)
    assert answer["audio_path"] == str(target)
    assert live.client.jobs.get(answer["job"])["format"] == "flac"
    check_is_speech(target, seconds=(0.2, 5.0))
    assert not (Path(live.environment["TTS_DATA_DIR"]) / "logs").exists(), "no worker of its own"


@pytest.mark.parametrize(
    ("text", "voice", "name", "code"),
    [
        ("Hello.", "Nobody", "out.wav", "voice_not_found: No voice is named 'Nobody'. There are: "),
        (" ", "Ada", "out.wav", "text_"),
        ("Hello.", "Ada", "out.txt", "format_unknown: "),
    ],
)
def test_say_tells_refusals(
    live: Live, tmp_path: Path, text: str, voice: str, name: str, code: str
) -> None:
    ended = live.call("say", text, "--voice", voice, "-o", tmp_path / name)
    assert ended.returncode == 1
    assert f"CommandError: {code}" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_bars_are_drawn_on_a_terminal(live: Live, texts: list[str], tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    command = ["render", *texts, "--voice", "Ada", "--out", str(tmp_path / "o"), "--follow"]
    process = subprocess.Popen(
        [sys.executable, str(PROJECT / "manage.py"), *command],
        env=live.environment | {"TERM": "xterm", "COLUMNS": "100"},
        stdout=subprocess.DEVNULL,
        stderr=theirs,
    )
    os.close(theirs)
    drawn = b""
    with suppress(OSError):  # Linux says so when the other end is closed
        while chunk := os.read(ours, 65536):
            drawn += chunk
    os.close(ours)

    assert process.wait(timeout=PATIENCE_SECONDS) == 0
    assert b"jobs" in drawn and b"segments" in drawn and b"x real time" in drawn


README = (PROJECT / "README.md").read_text(encoding="utf-8")


def test_example_of_readme_works(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = re.search(r"```python\n(from ttsweb\.client .*?)```", README, re.DOTALL)
    assert found is not None
    code = found[1].replace("http://127.0.0.1:8000", live.client.url).replace("Ada", "Emmy")
    shutil.copy(CLIP, tmp_path / "clip.wav")
    monkeypatch.chdir(tmp_path)
    exec(code, {"KEY": live.environment["TTS_API_KEY"]})
    assert (tmp_path / "morning.mp3").stat().st_size > 1000
