"""What the commands refuse, or the server: the exit code and what is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.ttsweb.management.commands.conftest import CLIP, Live
from tests.workers.commands import run

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
        (("voices", "rm", "Nobody"), 1, NO_VOICE),
        (("voices", "rm", "Nobody", "--json"), 1, NO_VOICE),
        ((*ADD, "--clip", __file__), 1, "CommandError: clip_"),
        ((*ADD, "--clip", "nowhere.wav"), 1, "file_error: nowhere.wav: No such file"),
        ((*ADD, "--clip", str(CLIP), "--clip", str(CLIP)), 2, "each --clip needs a --transcript"),
        (("render", "one.txt", *ADA, "--voice", "0=Bob"), 2, "speaker 0 has two voices"),
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
    before = sorted(folder.iterdir())

    ended = live.call(*arguments)

    assert ended.returncode == code
    assert words in ended.stderr
    error = f"CommandError: {json.loads(ended.stdout)['error']['code']}: " if ended.stdout else ""
    assert bool(error) is ("--json" in arguments) and error in ended.stderr
    assert sorted(folder.iterdir()) == before


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
