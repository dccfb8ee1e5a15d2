"""'./tts jobs', 'batches' and 'voices' against a real server, and what all commands refuse."""

from __future__ import annotations

import json
import signal
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import soundfile

from tests.ttsweb.management.commands.conftest import Live
from tests.workers.commands import (
    CLIP,
    TRANSCRIPT,
    check_is_speech,
    free_port,
    one_object,
    run,
    start,
)

LONG = "I saw the lamp in the long room. I came back to the long room. " * 600


def test_job_is_cancelled_retried_followed_and_downloaded(live: Live, tmp_path: Path) -> None:
    job = live.client.jobs.create("I saw the lamp. " * 40, voice="Ada", format="flac", seed=3)
    target = tmp_path / "out.flac"

    cancelled = one_object(live.done("jobs", "cancel", job["id"], "--json"))
    live.client.jobs.wait(job["id"], timeout=60)
    refused = live.call("jobs", "download", job["id"], "-o", target)
    retried = live.done("jobs", "retry", job["id"])
    options = ("--follow", "-o", target, "--json")
    answer = one_object(live.done("jobs", "download", job["id"], *options))

    assert cancelled["jobs"][0]["cancel_requested"] is True
    assert refused.returncode == 1 and "job_without_audio" in refused.stderr
    assert retried.startswith(job["id"])
    assert (answer["status"], answer["audio_path"]) == ("succeeded", str(target))
    assert "error" not in answer
    check_is_speech(target, seconds=(10.0, 120.0))
    assert [path.name for path in tmp_path.iterdir()] == ["out.flac"]


def test_job_is_listed_shown_and_its_file_named_by_it(live: Live, tmp_path: Path) -> None:
    text = "I saw it.\x1b[31m It saw me."
    job = live.client.jobs.create(text, voice="Ada", seed=4, format="wav")
    live.client.jobs.wait(job["id"], timeout=60)

    listed = live.done("jobs", "ls", "--status", "succeeded,partial", "--limit", "5")
    shown = live.done("jobs", "show", job["id"], "--segments")
    found = one_object(live.done("jobs", "show", job["id"], "--json"))
    inside = live.done("jobs", "download", job["id"], "-o", tmp_path)
    wrong = live.call("jobs", "download", job["id"], "-o", tmp_path / "a.mp3")

    row = next(line for line in listed.splitlines() if line.startswith(job["id"]))
    assert " succeeded " in row and " Ada " in row
    assert "status      succeeded" in shown and "real time" in shown
    assert "\x1b" not in shown + listed, "a text does not steer the terminal"
    assert "index  status" in shown
    assert found["id"] == job["id"] and found["text"].startswith("I saw it.")
    assert inside.strip() == str(tmp_path / f"speech-{job['id'][:8]}.wav")
    assert wrong.returncode == 1 and "format_differs" in wrong.stderr
    assert len(list(tmp_path.iterdir())) == 1


def test_file_of_an_unfinished_job_names_the_way_to_wait(live: Live, tmp_path: Path) -> None:
    job = live.client.jobs.create(LONG, voice="Ada", seed=5)
    target = tmp_path / "out.wav"
    try:
        ended = live.call("jobs", "download", job["id"], "-o", target)
    finally:
        live.client.jobs.delete(job["id"])
    assert ended.returncode == 1
    assert "job_not_finished" in ended.stderr and "--follow waits" in ended.stderr
    assert f"./tts jobs download {job['id']} --follow -o {target}" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_wrong_or_no_key_and_a_server_that_is_away_are_told_with_remedy(live: Live) -> None:
    where = f"http://127.0.0.1:{free_port()}"
    for changes, code, words in (
        ({"TTS_API_KEY": "tts_wrong"}, "key_invalid", (live.client.url, "TTS_API_KEY")),
        ({"TTS_API_KEY": ""}, "api_key_missing", ("./tts create_key",)),
        ({"TTS_URL": "", "TTS_PORT": where.rpartition(":")[2], "TTS_HOST": "0.0.0.0"},
         "server_unreachable", (where, "./tts serve")),
    ):  # fmt: skip
        ended = run(live.environment | changes, "jobs", "ls", "--json")
        assert ended.returncode == 1
        assert one_object(ended.stdout)["error"]["code"] == code
        assert all(word in ended.stderr for word in words), ended.stderr


def jsonl(path: Path, *items: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return path


def test_file_is_submitted_followed_and_becomes_a_zip(live: Live, tmp_path: Path) -> None:
    file = jsonl(
        tmp_path / "texts.jsonl",
        {"custom_id": "lamp", "text": "I saw the lamp."},
        {"custom_id": "room", "text": "I saw the room.", "format": "flac"},
    )
    target = tmp_path / "out.zip"
    options = ("--voice", "Ada", "--format", "mp3", "--follow", "--out", target, "--json")
    answer = one_object(live.done("batches", "submit", file, *options))
    assert (answer["batch"]["status"], answer["path"]) == ("succeeded", str(target))
    with zipfile.ZipFile(target) as archive:
        assert archive.testzip() is None
        assert archive.namelist()[:2] == ["lamp.mp3", "room.flac"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.zip", "texts.jsonl"]


def test_bad_lines_are_named_and_refused_unless_skipped(live: Live, tmp_path: Path) -> None:
    file = jsonl(tmp_path / "texts.jsonl", {"text": "I saw it."}, {"custom_id": "b", "text": ""})
    refused = live.call("batches", "submit", file, "--voice", "Ada")
    arguments = ("--voice", "Ada", "--on-error", "skip", "--follow", "--out", tmp_path)
    ended = live.call("batches", "submit", file, *arguments)
    assert (refused.returncode, ended.returncode) == (1, 1)
    assert "line 2 (custom_id 'b'): text: " in refused.stderr
    assert "CommandError: batch_items_invalid: 1 of 2 items" in refused.stderr
    [target] = tmp_path.glob("batch-*.zip")
    assert ended.stdout.strip() == f"2/2 items -> {target}"
    assert "items_failed" in ended.stderr
    batch_id = live.done("batches", "ls", "--limit", "1").splitlines()[1].split()[0]
    items = live.done("batches", "items", batch_id, "--status", "failed")
    assert items.splitlines()[1].split()[0] == "b" and "item-00001" not in items
    assert "items       2/2: 1 succeeded, 1 failed" in live.done("batches", "show", batch_id)


def test_batch_is_cancelled_and_retried(live: Live, tmp_path: Path) -> None:
    text = "I saw the lamp in the long room. " * 300
    items = [{"custom_id": f"c{number}", "text": text} for number in range(3)]
    batch = live.client.batches.submit(items, voice="Ada", defaults={"seed": 12})
    target = tmp_path / "out.zip"

    early = live.call("batches", "download", batch["id"], "-o", target)
    cancelled = one_object(live.done("batches", "cancel", batch["id"], "--json"))
    live.client.batches.wait(batch["id"], timeout=60)
    refused = live.call("batches", "download", batch["id"], "--follow", "-o", target)
    retried = live.done("batches", "retry", batch["id"])
    live.client.batches.delete(batch["id"])

    assert early.returncode == 1 and "--follow waits" in early.stderr
    assert cancelled["batches"][0]["cancel_requested"] is True
    assert refused.returncode == 1 and "batch_cancelled" in refused.stderr
    assert retried.startswith(batch["id"])
    assert not target.exists()
    assert live.call("batches", "show", batch["id"]).returncode == 1


def test_interrupt_ends_the_command_and_tells_how_to_come_back(live: Live, tmp_path: Path) -> None:
    text = "I saw the lamp in the long room. " * 300
    file = jsonl(tmp_path / "texts.jsonl", *[{"text": text, "seed": n} for n in range(3)])
    command = ("batches", "submit", str(file), "--voice", "Ada", "--follow", "--out", str(tmp_path))

    before = {batch["id"] for batch in live.client.batches.list()}
    with start(live.environment, *command) as process:
        deadline = time.monotonic() + 60
        made: set[str] = set()
        while not made and time.monotonic() < deadline:
            made = {batch["id"] for batch in live.client.batches.list()} - before
        live.client.batches.poll(min(made), 1)  # the command has its answer and waits by then
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    batch = live.client.batches.get(min(made))
    live.client.batches.delete(batch["id"])

    assert process.returncode == 130
    assert f"./tts batches download {batch['id']} --follow -o {tmp_path}" in errors
    assert batch["status"] in ("queued", "running"), "it goes on without the command"


def test_voice_is_made_listed_shown_and_deleted(live: Live, tmp_path: Path) -> None:
    samples, rate = soundfile.read(CLIP)
    soundfile.write(tmp_path / "short.wav", samples[: round(2.5 * rate)], rate)
    add = ["voices", "add", "Grace", "--clip", tmp_path / "short.wav", "--transcript", TRANSCRIPT]
    made = run(live.environment, *add, "--consent", "Synthetic.", "--json")
    shown = live.done("voices", "show", "grace")
    listed = one_object(live.done("voices", "ls", "--json"))["voices"]
    head, *rows = live.done("voices", "ls").splitlines()
    removed = live.done("voices", "rm", "GRACE", "--json")

    assert made.returncode == 0, made.stderr
    voice = one_object(made.stdout)
    assert (voice["name"], voice["status"]) == ("Grace", "ready")
    assert "clip_short" in made.stderr, "what costs quality is told"
    assert f"id          {voice['id']}" in shown and TRANSCRIPT in shown
    assert {"Ada", "Grace"} <= {row["name"] for row in listed}
    assert head.split() == ["id", "status", "language", "clips", "name"]
    assert any(row.endswith("1      Ada") and " ready " in row for row in rows)
    assert one_object(removed) == {"deleted": [voice["id"]]}
    assert voice["id"] not in [row["id"] for row in live.client.voices.list()]


def test_voice_leaves_as_a_file_and_comes_back(live: Live, tmp_path: Path) -> None:
    out = tmp_path / "files" / "ada.zip"
    answer = one_object(live.done("voices", "export", "ada", "--out", out, "--json"))
    taken = live.call("voices", "import", out)
    named = ("--name", "Ada again", "--shared", "--json")
    voice = one_object(live.done("voices", "import", out, *named))
    assert (answer["file"], answer["size_bytes"]) == (str(out), out.stat().st_size)
    assert (taken.returncode, "voice_name_taken" in taken.stderr) == (1, True)
    assert (voice["name"], voice["status"], voice["shared"]) == ("Ada again", "ready", True)
    assert [clip["transcript"] for clip in voice["clips"]] == [TRANSCRIPT]
    live.client.voices.delete(voice["id"])


UNKNOWN = "5b0f4a0e-0d53-4bbb-8ad1-3f4e4b1b2f11"
ADD = ("voices", "add", "Wrong", "--consent", "Yes.", "--transcript", "Said.")
ADA = ("--voice", "Ada")
NO_VOICE = "voice_not_found: No voice is named 'Nobody'. There are: Ada"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a text and a book that is none, where the commands run."""
    (tmp_path / "one.txt").write_text("I saw the lamp.")
    (tmp_path / "broken.epub").write_bytes(b"PK\x03\x04 and then nothing")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        *((("batches", "show", one), 1, "CommandError: batch_not_found: ")
          for one in (UNKNOWN, "nothing", "../voices")),
        *((("jobs", "show", one), 1, "CommandError: job_not_found: ")
          for one in (UNKNOWN, "nothing", "../voices")),
        (("batches", "submit", "none.jsonl"), 1, "none.jsonl"),
        (("jobs", "ls", "--status", "nearly"), 1, "'nearly'"),
        (("voices", "export", "Nobody", "--out", "x.zip"), 1, "voice_not_found"),
        (("voices", "export", "Ada", "--out", "/"), 1, "file_error"),
        (("voices", "import", "nowhere.zip"), 1, "file_error: nowhere.zip: No such file"),
        (("voices", "import", __file__), 1, "archive_"),
        (("voices", "rm", "Nobody"), 1, NO_VOICE),
        (("voices", "rm", "Nobody", "--json"), 1, NO_VOICE),
        ((*ADD, "--clip", __file__), 1, "CommandError: clip_"),
        ((*ADD, "--clip", "nowhere.wav"), 1, "file_error: nowhere.wav: No such file"),
        ((*ADD, "--clip", str(CLIP), "--clip", str(CLIP)), 2, "each --clip needs a --transcript"),
        (("render", "one.txt", *ADA, "--voice", "0=Bob"), 2,
         "speaker 0 has two voices, Ada and Bob; give one"),
        (("render", "one.txt", *ADA, "--bit-rate", "64k", "--json"), 1, "bit_rate_unfit: "),
        (("render", "a.txt", "sub/a.md", *ADA), 2, "rename one"),
        (("render", "a.txt", "a.txt", *ADA), 2, "rename one"),
        (("render", "a.wav", *ADA), 2, "expected a name in .txt or .md"),
        (("render",), 2, "required: FILE"),
        (("render", "one.txt", "--manifest", "list.csv"), 2, "not both"),
        (("render", "one.txt", "--sample", "hold", *ADA), 2, "--sample works only for"),
        (("render", "one.txt", "--include", "hidden", *ADA), 2, "work for one book only"),
        (("render", "broken.epub", *ADA, "--out", "book.avi"), 2, "expected a folder, or a name"),
        (("render", "broken.epub", *ADA, "--out", "book.txt"), 2, "expected a folder, or a name"),
        (("render", "broken.epub", *ADA, "--follow"), 1, "CommandError: book_"),
    ],
    ids=lambda one: " ".join(one[:4]) if isinstance(one, tuple) else None,
)  # fmt: skip
def test_refusal_is_told_and_writes_nothing(
    live: Live, folder: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    before = sorted(folder.iterdir()), len(list(live.client.voices.list()))
    ended = live.call(*arguments)
    assert ended.returncode == code
    assert words in ended.stderr
    error = f"CommandError: {json.loads(ended.stdout)['error']['code']}: " if ended.stdout else ""
    assert bool(error) is ("--json" in arguments) and error in ended.stderr
    assert (sorted(folder.iterdir()), len(list(live.client.voices.list()))) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("voices",), "ACTION"),
        *((("voices", *rest), "the following arguments are required")
          for rest in (("export", "Ada"), ("import",), ("export", "--out", "x"))),
        (("jobs", "ls", "--limit=0"), "0"),
        (("jobs", "ls", "--limit=many"), "many"),
    ],
)  # fmt: skip
def test_arguments_that_cannot_be_read_are_a_usage_error(
    clean_env: dict[str, str], arguments: tuple[str, ...], words: str
) -> None:
    ended = run(clean_env, *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert words in ended.stderr
