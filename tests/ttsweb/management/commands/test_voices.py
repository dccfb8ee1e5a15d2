"""`./tts voices` against a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ttsweb.management.commands.conftest import CLIP, TRANSCRIPT, Live
from tests.workers.commands import one_object, run


def test_voice_is_made_shown_and_deleted(live: Live) -> None:
    add = ["voices", "add", "Grace", "--clip", str(CLIP), "--transcript", TRANSCRIPT]
    made = run(live.environment, *add, "--consent", "Synthetic.", "--json")
    shown = live.call("voices", "show", "grace")
    listed = live.call("voices", "ls", "--json")
    removed = live.call("voices", "rm", "GRACE", "--json")

    assert made.returncode == 0, made.stderr
    voice = one_object(made.stdout)
    assert (voice["name"], voice["status"]) == ("Grace", "ready")
    assert "clip_short" in made.stderr, "what costs quality is told"
    assert f"id          {voice['id']}" in shown.stdout and TRANSCRIPT in shown.stdout
    assert {"Ada", "Grace"} <= {row["name"] for row in one_object(listed.stdout)["voices"]}
    assert one_object(removed.stdout) == {"deleted": [voice["id"]]}
    assert voice["id"] not in [row["id"] for row in live.client.voices.list()]


def test_voice_leaves_as_a_file_and_comes_back(live: Live, tmp_path: Path) -> None:
    out = tmp_path / "files" / "ada.zip"
    exported = live.call("voices", "export", "ada", "--out", str(out), "--json")
    taken = live.call("voices", "import", str(out))
    imported = live.call("voices", "import", str(out), "--name", "Ada again", "--shared", "--json")

    answer, voice = one_object(exported.stdout), one_object(imported.stdout)
    assert (answer["file"], answer["size_bytes"]) == (str(out), out.stat().st_size)
    assert (taken.returncode, "voice_name_taken" in taken.stderr) == (1, True)
    assert (voice["name"], voice["status"], voice["shared"]) == ("Ada again", "ready", True)
    assert [clip["transcript"] for clip in voice["clips"]] == [TRANSCRIPT]
    live.client.voices.delete(voice["id"])


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("export", "Nobody", "--out", "x.zip"), 1, "voice_not_found"),
        (("export", "Ada", "--out", "/"), 1, "file_error"),
        (("import", "nowhere.zip"), 1, "file_error: nowhere.zip: No such file"),
        (("import", __file__), 1, "archive_"),
    ],
)
def test_file_that_cannot_be_is_told_and_makes_nothing(
    live: Live, arguments: tuple[str, ...], code: int, says: str
) -> None:
    before = len(list(live.client.voices.list()))
    ended = live.call("voices", *arguments)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert says in ended.stderr
    assert len(list(live.client.voices.list())) == before


def test_list_for_people_has_a_head_and_a_row_for_each_voice(live: Live) -> None:
    listed = live.call("voices", "ls")
    head, *rows = listed.stdout.splitlines()
    assert head.split() == ["id", "status", "language", "clips", "name"]
    assert any(row.endswith("1      Ada") and " ready " in row for row in rows)
