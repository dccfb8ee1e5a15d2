"""`./tts bench`: what it prints, what it refuses, and its exit codes."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from argparse import ArgumentParser
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from lab.bench.machine import FIGURES
from lab.management.commands.bench import BENCHES
from ttsweb.commands.base import CommandError

ROOT = Path(__file__).resolve().parents[3]
SHORT = ("--frames", "4", "--windows", "2", "--threads", "1")
EVERY_ROW = {"device", "torch", "threads", "dtype", "batch", "context", "cache_length", "commit"}


def _bench(*arguments: str) -> str:
    stdout = io.StringIO()
    call_command("bench", *arguments, stdout=stdout)
    return stdout.getvalue()


def _json(*arguments: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(_bench(*arguments, "--json"))
    for row in content["rows"]:
        assert row.keys() >= EVERY_ROW | set(FIGURES)
        assert {key for key in FIGURES if row[key] is None} == set(row["why_null"])
    return content


def test_ar_has_a_row_for_each_batch_and_context_with_both_ratios() -> None:
    content = _json(
        "ar", "--preset", "tiny", "--batch", "1,3", "--context", "20,40", *SHORT,
        "--baseline", "--baseline-frames", "2",
    )  # fmt: skip

    rows = content["rows"]
    assert (content["name"], content["preset"]) == ("ar", "tiny")
    assert content["cpu_class"] in ("bf16", "avx2")
    assert [(row["context"], row["batch"]) for row in rows] == [(20, 1), (20, 3), (40, 1), (40, 3)]
    for row in rows:
        low, high = row["frames_per_second_low"], row["frames_per_second_high"]
        assert 0 < low <= row["frames_per_second"] <= high
        assert row["ratio_to_baseline"] > 0
        assert row["baseline_dtype"] in ("float32", "bfloat16")
        # The memory that a frame reads, as a share of what a copy moves: above 1 out of a cache.
        read = row["step_megabytes"] / 1e3 * row["frames_per_second"] / row["batch"]
        share = read / content["copy_gigabytes_per_second"]
        assert row["ratio_to_copy_bandwidth"] == pytest.approx(share, rel=1e-3)
        assert row["ratio_to_roofline"] >= row["ratio_to_copy_bandwidth"] * (1 - 1e-6) > 0


def test_ar_without_the_baseline_says_why_its_ratio_is_missing_and_keeps_its_json(
    tmp_path: Path,
) -> None:
    short = ("ar", "--preset", "tiny", "--batch", "2", "--context", "20", *SHORT)
    (row,) = _json(*short)["rows"]
    assert row["ratio_to_baseline"] is None
    assert "--baseline" in row["why_null"]["ratio_to_baseline"]
    path = tmp_path / "ar.json"
    printed = _bench(*short, "--output", str(path))
    assert "frames_per_second" in printed.splitlines()[-2]
    assert json.loads(path.read_text(encoding="utf-8"))["rows"][0]["batch"] == 2


def test_prefill_compares_a_cached_voice_with_the_whole_prompt() -> None:
    rows = _json(
        "prefill", "--preset", "tiny", "--tokens", "16", "--prefix", "0,32",
        "--windows", "2", "--threads", "1", "--baseline",
    )["rows"]  # fmt: skip
    assert [(row["prefix"], row["cached"]) for row in rows] == [(0, False), (32, False), (32, True)]
    assert all(row["milliseconds"] > 0 and row["ratio_to_baseline"] > 0 for row in rows)


def test_codec_streams_are_exact_and_bfloat16_says_its_error() -> None:
    rows = _json(
        "codec", "--preset", "tiny", "--frames", "3", "--batch", "1",
        "--windows", "1", "--threads", "1", "--kernels", "off",
    )["rows"]  # fmt: skip
    found = {(row["dtype"], row["streamed"]): row["error_db"] for row in rows}
    assert found["float32", False] is None
    assert found["float32", True] is None or found["float32", True] < -80
    assert -60 < found["bfloat16", False] < -10


def test_encode_compares_the_codes_of_both_precisions() -> None:
    rows = _json(
        "encode", "--preset", "tiny", "--seconds", "1", "--windows", "1", "--threads", "1"
    )["rows"]

    shares = {row["dtype"]: row["semantic_codes_that_differ"] for row in rows}
    assert shares["float32"] == 0
    assert 0 <= shares["bfloat16"] <= 1
    errors = {row["dtype"]: row["error_db"] for row in rows}
    assert errors["float32"] is None
    assert -60 < errors["bfloat16"] < -10
    assert all(row["milliseconds_from_48_khz"] > 0 for row in rows)


def test_cold_tells_every_part_of_a_start_and_the_memory(tmp_path: Path) -> None:
    rows = _json(
        "cold", "--preset", "tiny", "--runs", "1", "--frames", "4", "--slots", "1",
        "--threads", "1", "--folder", str(tmp_path),
    )["rows"]  # fmt: skip

    parts = {row["part"]: row for row in rows}
    assert list(parts)[:3] == ["interpreter", "numpy", "torch"]
    assert list(parts)[-3:] == ["warm-up", "first audio", "all"]
    total = sum(row["seconds"] for part, row in parts.items() if part != "all")
    assert parts["all"]["seconds"] == pytest.approx(total)
    assert 10 < parts["interpreter"]["peak_megabytes"] + 10 < parts["all"]["peak_megabytes"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("ar", "--batch", "0"), "0 is too small; use at least 1"),
        (("ar", "--batch", "1,x"), "expected whole numbers separated by commas"),
        (("ar", "--preset", "huge"), "is not a preset; use one of tiny, mid, full"),
        (
            ("ar", "--preset", "tiny", "--context", "40000"),
            "has only 32768; choose a shorter context",
        ),
        (("ar", "--dtype", "float8"), "'float8' is unknown"),
        (("ar", "--device", "abacus"), "is not a device"),
        (("ar", "--threads", "-1"), "expected 0 or more"),
        (("ar", "--preset", "tiny", "--plot", "ar.svg"), "pictures are PNG files"),
        (("encode", "--clip", "none.wav"), "is not a readable sound file"),
        (("codec", "--checkpoint", "nowhere"), "nowhere contains neither"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_a_sentence(
    arguments: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(CommandError) as caught:
        _bench(*arguments)
    assert sentence in str(caught.value)


def test_exit_codes_tell_bad_input(clean_env: dict[str, str]) -> None:
    for arguments in (["ar", "--preset", "huge"], ["ar", "--batch", "0"], ["nothing"]):
        command = [sys.executable, "manage.py", "bench", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=clean_env, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (2, "")
        assert "Traceback" not in done.stderr


def test_listing_the_benchmarks_does_not_load_torch(clean_env: dict[str, str]) -> None:
    listing = (
        "import sys; from django.core.management import execute_from_command_line\n"
        "try: execute_from_command_line(['manage.py', 'bench', '--help'])\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules"
    )
    environment = clean_env | {"DJANGO_SETTINGS_MODULE": "ttsweb.settings"}
    done = subprocess.run(
        [sys.executable, "-c", listing], cwd=ROOT, env=environment, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in BENCHES)


@pytest.mark.parametrize("name", BENCHES)
def test_every_benchmark_can_be_asked_for_its_arguments(name: str) -> None:
    module = import_module(BENCHES[name].module)
    parser = ArgumentParser()
    BENCHES[name].add_arguments(parser)
    assert "--help" in parser.format_help()
    assert callable(module.run)
