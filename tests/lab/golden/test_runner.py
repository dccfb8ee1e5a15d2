"""Test lab.golden.runner: every vector passes, and nothing unknown passes unseen."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lab.golden import checkpoint_checks, forward_checks, generation_checks, text_checks
from lab.golden.case import CaseResult, Check, GoldenFolder, GoldenFolderError
from lab.golden.runner import PATHS, UnknownPathError, render_table, run_golden

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
    shutil.copytree(golden.root, root)
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
def test_each_damage_fails_its_own_case(
    file: str, case: str, damaged_results: list[CaseResult]
) -> None:
    found = [r for r in damaged_results if (r.file, r.case) == (file, case)]
    assert found, [result for result in damaged_results if result.file == file]
    assert not any(result.passed for result in found)


def test_a_check_that_raises_stops_no_other(damaged_results: list[CaseResult]) -> None:
    passed = {result.file for result in damaged_results if result.passed}
    assert {"prompts.safetensors", "sampling.safetensors", "checkpoint.json"} <= passed


def test_a_folder_without_vectors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GoldenFolderError, match="vectors"):
        run_golden(tmp_path, report=lambda result: None)


def test_a_path_runs_its_own_checks_only_and_leaves_other_files_alone(
    golden: GoldenFolder, tmp_path: Path
) -> None:
    root = tmp_path / "golden"
    (root / "vectors").mkdir(parents=True)
    (root / "tiny-s2").symlink_to(golden.checkpoint)
    for name in ("codec_long.safetensors", "text.json"):
        shutil.copy(golden.vectors / name, root / "vectors" / name)
    results: list[CaseResult] = []

    run_golden(root, report=results.append, path="streamed")

    named = {name for module in PATHS["streamed"] for name in module.CHECKS}
    missing = {result.file for result in results if result.found == "missing"}
    assert {result.file for result in results} == named
    assert missing == named - {"codec_long.safetensors"}
    assert all(result.passed for result in results if result.file == "codec_long.safetensors")


def test_a_path_that_is_not_known_is_refused_with_those_that_are(golden: GoldenFolder) -> None:
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
