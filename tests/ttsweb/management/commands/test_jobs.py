"""`./tts jobs` against a real server, and what all commands say when there is none."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.ttsweb.management.commands.conftest import Live
from tests.workers.commands import check_is_speech, one_object, run

LONG = "I saw the lamp in the long room. I came back to the long room. " * 600


def test_job_is_cancelled_retried_followed_and_downloaded(live: Live, tmp_path: Path) -> None:
    job = live.client.jobs.create("I saw the lamp. " * 40, voice="Ada", format="flac", seed=3)
    target = tmp_path / "out.flac"

    cancelled = live.call("jobs", "cancel", job["id"], "--json")
    live.client.jobs.wait(job["id"], timeout=60)
    refused = live.call("jobs", "download", job["id"], "-o", str(target))
    retried = live.call("jobs", "retry", job["id"])
    followed = live.call("jobs", "download", job["id"], "--follow", "-o", str(target), "--json")

    assert one_object(cancelled.stdout)["jobs"][0]["cancel_requested"] is True
    assert refused.returncode == 1 and "job_without_audio" in refused.stderr
    assert retried.returncode == 0 and retried.stdout.startswith(job["id"])
    assert followed.returncode == 0, followed.stderr
    answer = one_object(followed.stdout)
    assert (answer["status"], answer["audio_path"]) == ("succeeded", str(target))
    assert "error" not in answer
    check_is_speech(target, seconds=(10.0, 120.0))
    assert [path.name for path in tmp_path.iterdir()] == ["out.flac"]


def test_job_is_listed_and_shown_with_its_segments(live: Live) -> None:
    job = live.client.jobs.create("I saw it.\x1b[31m It saw me.", voice="Ada", seed=4)
    live.client.jobs.wait(job["id"], timeout=60)

    listed = live.call("jobs", "ls", "--status", "succeeded,partial", "--limit", "5")
    shown = live.call("jobs", "show", job["id"], "--segments")
    object_ = one_object(live.call("jobs", "show", job["id"], "--json").stdout)

    row = next(line for line in listed.stdout.splitlines() if line.startswith(job["id"]))
    assert " succeeded " in row and " Ada " in row
    assert "status      succeeded" in shown.stdout and "real time" in shown.stdout
    assert "\x1b" not in shown.stdout + listed.stdout, "a text does not steer the terminal"
    assert "index  status" in shown.stdout
    assert object_["id"] == job["id"] and object_["text"].startswith("I saw it.")


def test_file_of_an_unfinished_job_names_the_way_to_wait(live: Live, tmp_path: Path) -> None:
    job = live.client.jobs.create(LONG, voice="Ada", seed=5)
    target = tmp_path / "out.wav"
    try:
        ended = live.call("jobs", "download", job["id"], "-o", str(target))
    finally:
        live.client.jobs.delete(job["id"])

    assert ended.returncode == 1
    assert "job_not_finished" in ended.stderr and "--follow waits" in ended.stderr
    assert f"./tts jobs download {job['id']} --follow -o {target}" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_file_is_named_by_the_job_in_a_folder_and_never_by_another_format(
    live: Live, tmp_path: Path
) -> None:
    job = live.client.jobs.create("I saw it.", voice="Ada", format="wav")
    live.client.jobs.wait(job["id"], timeout=60)

    inside = live.call("jobs", "download", job["id"], "-o", str(tmp_path))
    wrong = live.call("jobs", "download", job["id"], "-o", str(tmp_path / "a.mp3"))

    assert inside.stdout.strip() == str(tmp_path / f"speech-{job['id'][:8]}.wav")
    assert wrong.returncode == 1 and "format_differs" in wrong.stderr
    assert len(list(tmp_path.iterdir())) == 1


def test_wrong_key_is_told_with_the_server_it_is_for(live: Live) -> None:
    ended = run(live.environment | {"TTS_API_KEY": "tts_wrong"}, "jobs", "ls", "--json")
    assert ended.returncode == 1
    assert one_object(ended.stdout)["error"]["code"] == "key_invalid"
    assert live.client.url in ended.stderr and "TTS_API_KEY" in ended.stderr


def test_missing_key_is_told_with_the_way_to_one(live: Live) -> None:
    ended = run(live.environment | {"TTS_API_KEY": ""}, "jobs", "ls")
    assert ended.returncode == 1
    assert "api_key_missing: " in ended.stderr and "./tts create_key" in ended.stderr


def test_server_that_is_away_is_told_with_the_remedy(clean_env: dict[str, str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environment = clean_env | {"TTS_API_KEY": "tts_key", "TTS_PORT": port, "TTS_HOST": "0.0.0.0"}
    ended = run(environment, "jobs", "ls", "--json")

    assert ended.returncode == 1
    assert one_object(ended.stdout)["error"]["code"] == "server_unreachable"
    assert f"http://127.0.0.1:{port}" in ended.stderr and "./tts serve" in ended.stderr
