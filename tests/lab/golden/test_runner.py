"""Test the runner and its command: every vector passes, nothing unknown passes unseen."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest
import torch
from django.core.management import call_command
from safetensors.torch import load_file, save_file

from lab.golden import checkpoint_checks, forward_checks, generation_checks, text_checks
from lab.golden.case import CaseResult, Check, GoldenFolder, GoldenFolderError
from lab.golden.runner import PATHS, UnknownPathError, render_table, run_golden
from tests.synth.engine.conftest import GOLDEN
from ttsweb.commands.base import CommandError

_LM_CHECKS: dict[str, Check] = (
    text_checks.CHECKS | forward_checks.CHECKS | generation_checks.CHECKS | checkpoint_checks.CHECKS
)


@pytest.mark.parametrize("name", sorted(_LM_CHECKS))
def test_every_language_model_vector_is_met(name: str, golden: GoldenFolder) -> None:
    results = list(_LM_CHECKS[name](golden))
    assert results
    assert [result for result in results if not result.passed] == []


@pytest.fixture(scope="module")
def damaged_results(
    golden: GoldenFolder, tmp_path_factory: pytest.TempPathFactory
) -> list[CaseResult]:
    """The results of a folder with one damage in each of several files."""
    root = tmp_path_factory.mktemp("damaged") / "golden"
    # Without the codec's vectors, which take the time and are not looked at here.
    codec = shutil.ignore_patterns("codec_*s", "voices*", "wav*", "resample*", "end_to_end*")
    shutil.copytree(golden.root, root, ignore=codec)
    vectors = root / "vectors"
    (vectors / "novel.safetensors").write_bytes(b"")
    (vectors / "novel_inputs").mkdir()
    (root / "stray.txt").write_text("?", encoding="utf-8")
    (root / "tiny-s2" / "stray.bin").write_bytes(b"?")
    rope = load_file(vectors / "rope.safetensors")
    rope["lm.table"][-1, -1, -1] += 2**-6
    rope["novel.positions"] = torch.zeros(1, dtype=torch.int32)
    save_file(rope, vectors / "rope.safetensors")
    greedy = load_file(vectors / "greedy.safetensors")
    greedy["no_voice.frames"][3, 5] += 1
    save_file(greedy, vectors / "greedy.safetensors")
    lm = load_file(vectors / "lm.safetensors")
    lm["one_voice.novel"] = torch.zeros(1)
    save_file(lm, vectors / "lm.safetensors")
    probs = load_file(vectors / "probs.safetensors")
    del probs["in.flat"]
    save_file(probs, vectors / "probs.safetensors")
    _add_json(vectors / "checkpoint.json", "lm", {"case": "novel", "outcome": "ok"})
    (vectors / "text.json").unlink()
    return _run(root)


def _add_json(path: Path, key: str, row: object) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    content[key].append(row)
    path.write_text(json.dumps(content), encoding="utf-8")


def _run(root: Path) -> list[CaseResult]:
    results: list[CaseResult] = []
    counts = run_golden(root, report=results.append)
    assert counts == (len(results), sum(not result.passed for result in results))
    return results


@pytest.mark.parametrize(
    ("file", "case"),
    [
        ("novel.safetensors", ""),
        ("vectors/novel_inputs/", ""),
        ("stray.txt", ""),
        ("tiny-s2/", "stray.bin"),
        ("rope.safetensors", "lm"),
        ("rope.safetensors", "novel"),
        ("greedy.safetensors", "no_voice.frames"),
        ("lm.safetensors", "one_voice.novel"),
        ("probs.safetensors", "after out.3"),
        ("checkpoint.json", "lm.novel"),
        ("text.json", ""),
    ],
)
def test_each_damage_fails_its_own_case_and_stops_no_other_check(
    file: str, case: str, damaged_results: list[CaseResult]
) -> None:
    found = [r for r in damaged_results if (r.file, r.case) == (file, case)]
    assert found, [result for result in damaged_results if result.file == file]
    assert not any(result.passed for result in found)
    passed = {result.file for result in damaged_results if result.passed}
    assert {"prompts.safetensors", "sampling.safetensors", "checkpoint.json"} <= passed


def test_a_path_runs_its_own_checks_only_and_leaves_other_files_alone(
    golden: GoldenFolder, tmp_path: Path
) -> None:
    root = tmp_path / "golden"
    (root / "vectors").mkdir(parents=True)
    (root / "tiny-s2").symlink_to(golden.checkpoint)
    for name in ("end_to_end.safetensors", "text.json"):
        shutil.copy(golden.vectors / name, root / "vectors" / name)
    results: list[CaseResult] = []

    run_golden(root, report=results.append, path="streamed")

    named = {name for module in PATHS["streamed"] for name in module.CHECKS}
    missing = {result.file for result in results if result.found == "missing"}
    assert {result.file for result in results} == named
    assert missing == named - {"end_to_end.safetensors"}
    assert all(result.passed for result in results if result.file == "end_to_end.safetensors")


def test_a_folder_without_vectors_and_an_unknown_path_are_refused(
    golden: GoldenFolder, tmp_path: Path
) -> None:
    with pytest.raises(GoldenFolderError, match="vectors"):
        run_golden(tmp_path, report=lambda result: None)
    with pytest.raises(UnknownPathError, match=r"'steamed'; there are plain, .*streamed"):
        run_golden(golden.root, report=lambda result: None, path="steamed")


def test_the_table_has_a_line_for_each_result_and_its_verdict() -> None:
    results = [
        CaseResult("a.json", "one", "x", "equal", True),
        CaseResult("a.json", "two", "x", "y" * 500, False),
    ]
    lines = render_table(results).splitlines()
    assert len(lines) == 3
    assert lines[1].endswith("pass")
    assert lines[2].endswith("FAIL")
    assert len(lines[2]) < 200


@pytest.fixture
def small_folder(tmp_path: Path) -> Path:
    """A golden folder of which only the text vectors are left, so that it fails quickly."""
    root = tmp_path / "golden"
    shutil.copytree(GOLDEN / "tiny-s2", root / "tiny-s2")
    (root / "vectors").mkdir()
    shutil.copyfile(GOLDEN / "vectors" / "text.json", root / "vectors" / "text.json")
    return root


def verify(folder: Path, *arguments: str) -> str:
    """Return what the command prints, which ends in exit code 1."""
    out = io.StringIO()
    with pytest.raises(SystemExit) as caught:
        call_command("verify-golden", str(folder), *arguments, stdout=out)
    assert caught.value.code == 1
    return out.getvalue()


def test_a_miss_is_counted_in_the_last_line_and_json_holds_every_case(small_folder: Path) -> None:
    lines = verify(small_folder).splitlines()
    num_failed = sum(line.endswith("FAIL") for line in lines)
    assert lines[-1] == f"{len(lines) - 2} cases, {num_failed} failed"
    assert any("text.json" in line and line.endswith("pass") for line in lines)
    assert any("rope.safetensors" in line and "missing" in line for line in lines)
    content = json.loads(verify(small_folder, "--json"))
    assert (content["cases"], content["failed"]) == (len(content["results"]), num_failed)
    assert content["path"] == "plain"
    assert set(content["results"][0]) == {"file", "case", "expected", "found", "passed"}


def test_the_path_chosen_is_the_one_that_runs_and_others_end_in_exit_code_2(
    small_folder: Path, tmp_path: Path
) -> None:
    printed = verify(small_folder, "--path", "streamed")
    assert "codec_decode.safetensors" in printed
    assert "rope.safetensors" not in printed
    for arguments, words in (
        ([str(tmp_path)], "vectors"),
        ([str(small_folder), "--path", "sideways"], "streamed"),
    ):
        with pytest.raises(CommandError, match=words) as caught:
            call_command("verify-golden", *arguments)
        assert caught.value.returncode == 2
