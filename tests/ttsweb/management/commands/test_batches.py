"""`./tts batches` against a real server: a JSONL file becomes a zip, also after Ctrl-C."""

from __future__ import annotations

import json
import signal
import time
import zipfile
from pathlib import Path
from typing import Any

from tests.ttsweb.management.commands.conftest import Live
from tests.workers.commands import one_object, start


def jsonl(path: Path, *items: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return str(path)


def test_file_is_submitted_followed_and_becomes_a_zip(live: Live, tmp_path: Path) -> None:
    file = jsonl(
        tmp_path / "texts.jsonl",
        {"custom_id": "lamp", "text": "I saw the lamp."},
        {"custom_id": "room", "text": "I saw the room.", "format": "flac"},
    )
    target = tmp_path / "out.zip"

    ended = live.call(
        "batches", "submit", file, "--voice", "Ada", "--format", "mp3", "--follow",
        "--out", str(target), "--json",
    )  # fmt: skip

    assert ended.returncode == 0, ended.stderr
    answer = one_object(ended.stdout)
    assert (answer["batch"]["status"], answer["path"]) == ("succeeded", str(target))
    with zipfile.ZipFile(target) as archive:
        assert archive.testzip() is None
        assert archive.namelist()[:2] == ["lamp.mp3", "room.flac"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.zip", "texts.jsonl"]


def test_bad_lines_are_named_and_nothing_is_queued(live: Live, tmp_path: Path) -> None:
    file = jsonl(tmp_path / "texts.jsonl", {"text": "I saw it."}, {"custom_id": "b", "text": ""})
    ended = live.call("batches", "submit", file, "--voice", "Ada")
    assert ended.returncode == 1
    assert "line 2 (custom_id 'b'): text: " in ended.stderr
    assert "CommandError: batch_items_invalid: 1 of 2 items" in ended.stderr


def test_batch_that_is_whole_only_in_part_is_written_and_told_by_the_exit_code(
    live: Live, tmp_path: Path
) -> None:
    file = jsonl(tmp_path / "texts.jsonl", {"text": "I saw it."}, {"text": ""})
    arguments = ("--voice", "Ada", "--on-error", "skip", "--follow", "--out", str(tmp_path))
    ended = live.call("batches", "submit", file, *arguments)

    assert ended.returncode == 1
    [target] = tmp_path.glob("batch-*.zip")
    assert ended.stdout.strip() == f"2/2 items -> {target}"
    assert "items_failed" in ended.stderr
    listed = live.call("batches", "ls", "--limit", "1").stdout
    batch_id = listed.splitlines()[1].split()[0]
    items = live.call("batches", "items", batch_id, "--status", "failed").stdout
    assert "item-00002" in items and "item-00001" not in items
    shown = live.call("batches", "show", batch_id).stdout
    assert "items       2/2: 1 succeeded, 1 failed" in shown


def test_batch_is_cancelled_and_retried(live: Live, tmp_path: Path) -> None:
    text = "I saw the lamp in the long room. " * 300
    batch = live.client.batches.submit(
        [{"custom_id": f"c{number}", "text": text} for number in range(3)],
        voice="Ada",
        defaults={"seed": 12},
    )
    target = tmp_path / "out.zip"

    early = live.call("batches", "download", batch["id"], "-o", str(target))
    cancelled = live.call("batches", "cancel", batch["id"], "--json")
    live.client.batches.wait(batch["id"], timeout=60)
    refused = live.call("batches", "download", batch["id"], "--follow", "-o", str(target))
    retried = live.call("batches", "retry", batch["id"])
    live.client.batches.delete(batch["id"])

    assert early.returncode == 1 and "--follow waits" in early.stderr
    assert one_object(cancelled.stdout)["batches"][0]["cancel_requested"] is True
    assert refused.returncode == 1 and "batch_cancelled" in refused.stderr
    assert retried.returncode == 0 and retried.stdout.startswith(batch["id"])
    assert not target.exists()
    assert live.call("batches", "show", batch["id"]).returncode == 1


def test_interrupt_ends_the_command_and_tells_how_to_come_back(live: Live, tmp_path: Path) -> None:
    text = "I saw the lamp in the long room. " * 300
    file = jsonl(tmp_path / "texts.jsonl", *[{"text": text, "seed": n} for n in range(3)])
    command = ("batches", "submit", file, "--voice", "Ada", "--follow", "--out", str(tmp_path))

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
