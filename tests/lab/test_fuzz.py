"""What fuzzing has found stays mended: every kept file is read, or refused by a code."""

from __future__ import annotations

import io
import json
import random
import zipfile
from pathlib import Path

import pytest

from lab import fuzz
from lab.fuzz import SEEDS, TARGETS, mutate_zip, reader_of, run_by_chance, seeds_of
from tests.workers.commands import environment_for, run

KEPT = [(target, path) for target in TARGETS for path in seeds_of(target)]


@pytest.mark.parametrize(("target", "path"), KEPT, ids=lambda one: getattr(one, "name", one))
def test_kept_file_is_read_or_refused(target: str, path: Path) -> None:
    reader_of(target)(path.read_bytes())


def test_each_target_has_seeds_that_are_small() -> None:
    assert {path.name for path in SEEDS.iterdir() if path.is_dir()} == set(TARGETS)
    assert [path for _, path in KEPT if path.stat().st_size > 30_000] == []


def test_seeds_are_good_files(tmp_path: Path) -> None:
    """A seed that is refused at its first byte leads nowhere."""
    from synth.books.detect import read_book

    for target in ("epub", "docx", "pdf"):
        first = next(path for path in seeds_of(target) if path.suffix == f".{target}")
        assert list(read_book(first.read_bytes(), first.name).blocks())


def test_member_of_an_archive_is_changed_and_its_checksum_right() -> None:
    content = (SEEDS / "voice" / "ada.zip").read_bytes()

    made = mutate_zip(content, random.Random(1), lambda inside: inside + b"more")

    with zipfile.ZipFile(io.BytesIO(made)) as new, zipfile.ZipFile(io.BytesIO(content)) as old:
        assert new.testzip() is None
        changed = [name for name in old.namelist() if new.read(name) != old.read(name)]
    assert len(changed) == 1


def test_without_guidance_a_failure_is_found_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(content: bytes) -> None:
        if content != b"good":
            raise ValueError("unforeseen")

    (tmp_path / "jsonl").mkdir()
    (tmp_path / "jsonl" / "seed").write_bytes(b"good")
    monkeypatch.setattr(fuzz, "SEEDS", tmp_path)
    monkeypatch.setattr(fuzz, "reader_of", lambda target: read)
    monkeypatch.setattr(fuzz, "MEMORY_MEGABYTES", 100_000)  # of this whole process

    assert run_by_chance("jsonl", 60) == 1

    assert len([one for one in (tmp_path / "jsonl").iterdir() if one.name != "seed"]) == 1


def test_command_fuzzes_a_target(tmp_path: Path) -> None:
    environment = environment_for(tmp_path)

    ended = run(environment, "fuzz", "--minutes", "0.02", "--target", "voice", "--json")

    assert ended.returncode == 0, ended.stderr
    (result,) = json.loads(ended.stdout)["targets"]
    assert (result["target"], result["findings"]) == ("voice", [])
    assert result["inputs"] > 0
