"""`./tts render` and `./tts say` against a real server."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.ttsweb.management.commands.conftest import Live
from tests.workers.commands import (
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
    """Return the id of the newest job with this text, once there is one."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        for job in live.client.jobs.list(status="queued,running"):
            if job["text_start"].startswith(words):
                return job["id"]
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_each_file_becomes_an_audio_file(live: Live, texts: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "new" / "audio"
    arguments = ["--voice", "Ada", "--out", str(folder), "--format", "flac", "--follow", "--json"]
    ended = live.call("render", *texts, *arguments)

    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == "", "bars are for terminals"
    answer = one_object(ended.stdout)["jobs"]
    assert [row["file"] for row in answer] == texts
    assert [row["status"] for row in answer] == ["succeeded"] * 2
    assert sorted(path.name for path in folder.iterdir()) == ["one.flac", "two.flac"]
    check_is_speech(folder / "one.flac", seconds=(0.3, 5.0))
    assert live.client.jobs.get(answer[0]["job"])["priority"] == "bulk"


def test_options_and_speakers_reach_the_server_and_the_file(live: Live, tmp_path: Path) -> None:
    path = tmp_path / "dialog.txt"
    path.write_text("I saw the lamp. <|speaker:2|>It was in the long room.", encoding="utf-8")
    options = ["--format", "opus", "--bit-rate", "32k", "--sample-rate", "24000"]
    options += ["--loudness", "-18", "--language", "en-gb", "--pause", "speaker=0"]
    options += ["--deadline", "10m", "--retention", "2h", "--priority", "interactive"]
    voices = ["--voice", "Ada", "--voice", "2=ada"]

    ended = live.call(
        "render", str(path), *voices, *options, "--out", str(tmp_path), "--follow", "--json"
    )

    assert ended.returncode == 0, ended.stderr
    job = live.client.jobs.get(one_object(ended.stdout)["jobs"][0]["job"])
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
    ended = live.call("render", texts[0], "--voice", "Ada", "--out", str(folder))
    label, _, line = ended.stdout.strip().partition("  ")
    words = shlex.split(line)
    fetched = live.call("jobs", *words[2:])

    assert (label, words[:2]) == (texts[0], ["./tts", "jobs"])
    assert fetched.returncode == 0, fetched.stderr
    check_is_speech(folder / "one.wav", seconds=(0.3, 5.0))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_leaves_the_job_and_tells_the_way_back(
    live: Live, tmp_path: Path, number: signal.Signals
) -> None:
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


def test_text_that_the_server_refuses_is_named_and_what_was_queued_can_be_fetched(
    live: Live, texts: list[str], tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong.txt"
    wrong.write_bytes(b"binary\x00text")
    ended = live.call("render", texts[0], str(wrong), "--voice", "Ada", "--json")

    assert ended.returncode == 1
    error = one_object(ended.stdout)["error"]
    assert error["code"].startswith("text_") and str(wrong) in error["message"]
    assert "--follow -o one.wav" in ended.stderr


def test_file_that_cannot_be_read_is_told_before_anything_is_queued(
    live: Live, texts: list[str], tmp_path: Path
) -> None:
    latin, empty = tmp_path / "latin.txt", tmp_path / "empty.txt"
    latin.write_bytes(b"caf\xe9")
    empty.write_text(" \n")
    before = [job["id"] for job in live.client.jobs.list()]

    for path, code in (
        (latin, "text_not_utf8"), (empty, "text_empty"), (tmp_path / "no.txt", "file_error")
    ):  # fmt: skip
        ended = live.call("render", texts[0], str(path), "--voice", "Ada")
        assert ended.returncode == 1
        assert f"{code}: {path}" in ended.stderr

    assert [job["id"] for job in live.client.jobs.list()] == before


def test_say_speaks_on_the_server(live: Live, tmp_path: Path) -> None:
    target = tmp_path / "new" / "out.flac"
    ended = run(live.environment, "say", "I saw it.", "--voice", "ADA", "-o", str(target), "--json")

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
def test_say_tells_what_the_server_refuses(
    live: Live, tmp_path: Path, text: str, voice: str, name: str, code: str
) -> None:
    ended = live.call("say", text, "--voice", voice, "-o", str(tmp_path / name))
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
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # Linux says so when the other end is closed
            break
        if not chunk:
            break
        drawn += chunk
    os.close(ours)

    assert process.wait(timeout=PATIENCE_SECONDS) == 0
    assert b"jobs" in drawn and b"segments" in drawn and b"x real time" in drawn
