"""Test the command verify-golden; that all vectors pass is the runner's own test."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest
from django.core.management import call_command

from ttsweb.commands.base import CommandError

GOLDEN = Path(__file__).parents[2] / "data" / "golden"


@pytest.fixture
def small_folder(tmp_path: Path) -> Path:
    """A golden folder of which only the text vectors are left, so that it fails quickly."""
    root = tmp_path / "golden"
    shutil.copytree(GOLDEN / "tiny-s2", root / "tiny-s2")
    (root / "vectors").mkdir()
    shutil.copyfile(GOLDEN / "vectors" / "text.json", root / "vectors" / "text.json")
    return root


def test_a_miss_ends_in_exit_code_1_and_is_counted_in_the_last_line(small_folder: Path) -> None:
    out = io.StringIO()

    with pytest.raises(SystemExit) as caught:
        call_command("verify-golden", str(small_folder), stdout=out)

    assert caught.value.code == 1
    lines = out.getvalue().splitlines()
    num_failed = sum(line.endswith("FAIL") for line in lines)
    assert lines[-1] == f"{len(lines) - 2} cases, {num_failed} failed"
    assert any("text.json" in line and line.endswith("pass") for line in lines)
    assert any("rope.safetensors" in line and "missing" in line for line in lines)


def test_json_holds_the_counts_and_every_case(small_folder: Path) -> None:
    out = io.StringIO()

    with pytest.raises(SystemExit):
        call_command("verify-golden", str(small_folder), "--json", stdout=out)

    content = json.loads(out.getvalue())
    assert content["cases"] == len(content["results"])
    assert content["failed"] == sum(not result["passed"] for result in content["results"])
    assert content["path"] == "plain"
    assert set(content["results"][0]) == {"file", "case", "expected", "found", "passed"}


def test_another_folder_ends_in_exit_code_2(tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        call_command("verify-golden", str(tmp_path))
    assert caught.value.returncode == 2


def test_a_path_that_does_not_exist_ends_in_exit_code_2(small_folder: Path) -> None:
    with pytest.raises(CommandError, match="streamed") as caught:
        call_command("verify-golden", str(small_folder), "--path", "sideways")
    assert caught.value.returncode == 2


def test_the_path_chosen_is_the_one_that_runs(small_folder: Path) -> None:
    out = io.StringIO()
    with pytest.raises(SystemExit):  # the codec's vectors are missing here
        call_command("verify-golden", str(small_folder), "--path", "streamed", stdout=out)
    assert "codec_decode.safetensors" in out.getvalue()
    assert "rope.safetensors" not in out.getvalue()
