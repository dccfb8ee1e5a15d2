"""What './tts doctor' finds, what it says about it, and its exit code."""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from pytest_django import Settings
from safetensors.torch import load_file, save_file

from synth.engine.codec import resample
from synth.engine.codec.torchaudio_import import TorchaudioImport
from synth.engine.device import DeviceMemory
from synth.engine.native import build, library
from tests.factories import make_worker
from tests.workers.commands import PROJECT, free_port, one_object, run
from workers.local import doctor, doctor_engine
from workers.local.doctor import Check, Finding, run_checks

LINES = {name for name, _ in (*doctor.CHECKS, *doctor_engine.CHECKS)}


@pytest.fixture
def own_port(clean_env: dict[str, str]) -> dict[str, str]:
    """The environment, with a port that nobody else listens on."""
    return clean_env | {"TTS_PORT": str(free_port())}


def test_fresh_installation_is_in_order_and_its_storage_empty(own_port: dict[str, str]) -> None:
    ended = run(own_port, "doctor", "--json")
    answer: dict[str, Any] = one_object(ended.stdout)
    found = {finding["name"]: finding for finding in answer["findings"]}
    assert set(found) == LINES
    assert len(LINES) == 16
    assert {name for name, finding in found.items() if finding["level"] == "fail"} == set()
    assert (ended.returncode, answer["failed"]) == (0, 0)
    assert re.search(r": \d\.\d M parameters, ", found["checkpoint"]["text"])
    assert {row["device_gb"] for row in found["profiles"]["rows"]} == {16, 24, 48, 80, 141}
    assert "Apache-2.0" in found["checkpoint"]["text"]
    storage = Path(own_port["TTS_DATA_DIR"]) / "storage"
    assert list(storage.iterdir()) == []
    assert not (storage.parent / "db.sqlite3").exists(), "looking must not make a database"


def test_what_is_away_fails_with_remedy_and_no_password_shown(own_port: dict[str, str]) -> None:
    environment = own_port | {
        "TTS_CHECKPOINT": "/nonexistent",
        "TTS_DATABASE_URL": "postgresql://ada:hunter2@127.0.0.1:1/ttsweb",
        "TTS_REDIS_URL": "redis://:hunter2@127.0.0.1:1/0",
        "TTS_SECRET_KEY": os.urandom(30).hex(),
    }
    ended = run(environment, "doctor")
    lines = [line for line in ended.stdout.splitlines() if not line.startswith(" ")]
    assert ended.returncode == 1
    assert {line.split()[1] for line in lines} == LINES
    failed = {line.split()[1]: line for line in lines if line.startswith("fail")}
    assert set(failed) == {"numbers", "checkpoint", "memory", "database", "broker"}
    assert "-> set TTS_CHECKPOINT to" in failed["checkpoint"]
    assert "hunter2" not in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("changes", "look", "level", "words"),
    [
        ({"MIN_FREE_BYTES": 10**18}, doctor.look_at_storage, "fail", "workers start no new work"),
        ({"UNKNOWN_VARIABLES": ["TTS_DEVISE is set, but this setting does not exist"]},
         doctor.look_at_settings, "warn", "TTS_DEVISE"),
        ({"UNKNOWN_VARIABLES": ["TTS_DEVISE is set"]}, doctor.look_at_settings, "warn",
         "-> correct or remove it"),
        ({"HOST": "0.0.0.0", "ALLOWED_HOSTS": ["localhost", "127.0.0.1", "[::1]"]},
         doctor.look_at_port, "fail", "TTS_ALLOWED_HOSTS"),
        ({"ENGINE_WITHOUT": ["torchaudio"]}, doctor_engine.look_at_resampler, "ok", "  builtin "),
        ({"DEVICE": "cuda:77"}, doctor_engine.look_at_device, "fail", "cuda:77"),
    ],
)  # fmt: skip
def test_setting_is_found_as_it_is(
    changes: dict[str, Any], look: Check, level: str, words: str, settings: Settings
) -> None:
    for name, value in changes.items():
        setattr(settings, name, value)
    found = look()
    assert found.level == level
    assert words in found.line()


def test_folder_that_cannot_be_made_fails(tmp_path: Path, settings: Settings) -> None:
    (tmp_path / "file").write_text("in the way")
    default = settings.STORAGES["default"] | {"OPTIONS": {"location": tmp_path / "file" / "below"}}
    settings.STORAGES = settings.STORAGES | {"default": default}
    found = doctor.look_at_storage()
    assert (found.level, "TTS_STORAGE" in found.remedy) == ("fail", True)


def test_port_of_another_program_is_a_warning(settings: Settings) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        settings.HOST, settings.PORT = holder.getsockname()
        found = doctor.look_at_port()
    assert (found.level, "--port auto" in found.remedy) == ("warn", True)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("state", "seconds_ago", "level", "text"),
    [
        ("ready", 0, "ok", "w-1 all ready"),
        ("failed", 0, "fail", "w-1 all failed"),
        ("ready", 3600, "ok", "none is running"),
    ],
)
def test_worker_is_shown_as_it_said(state: str, seconds_ago: int, level: str, text: str) -> None:
    make_worker("w-1", role="all", state=state, seconds_ago=seconds_ago)
    found = doctor.look_at_workers()
    assert (found.level, text in found.text) == (level, True)


def test_resampler_is_named_with_how_torchaudio_imports_and_how_far_both_are_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = doctor_engine.look_at_resampler()
    assert found.level == "ok"
    assert found.text.startswith("torchaudio (torchaudio 2.")
    apart = re.search(r"by at most (\S+)", found.text)
    assert apart is not None and float(apart[1]) <= 1e-6
    why = "ModuleNotFoundError: No module named 'torchaudio'"
    for module in (doctor_engine, resample):
        monkeypatch.setattr(module, "import_torchaudio", lambda: TorchaudioImport(None, why))
    said = f"builtin (torchaudio cannot be imported ({why}))"
    assert doctor_engine.look_at_resampler().text == said


@pytest.mark.parametrize(
    ("compiler", "words"),
    [
        ("echo 'frame.c:1: fatal error: stdio.h: No such file' >&2; exit 1", "stdio.h: No such"),
        (None, "CC names /nowhere/cc"),
    ],
    ids=["fails", "is not there"],
)
def test_compiler_that_compiles_nothing_is_a_warning_with_its_remedy(
    compiler: str | None,
    words: str,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    program = Path("/nowhere/cc")
    if compiler is not None:
        program = tmp_path / "cc"
        program.write_text(f"#!/bin/sh\n{compiler}\n")
        program.chmod(0o755)
    monkeypatch.setenv("CC", str(program))
    monkeypatch.setattr(build, "BUILT", tmp_path / "built")
    monkeypatch.setattr(library, "_libraries", {})
    monkeypatch.setattr(library, "cache_folders", lambda _: [tmp_path / "cache"])
    monkeypatch.setattr(library, "find_target", lambda simd, bf16: build.TARGETS[-1])
    settings.DEVICE = "cpu"

    found = doctor_engine.look_at_numbers()

    assert (found.level, words in found.text) == ("warn", True), found.text
    assert "apt-get install gcc libc6-dev" in found.remedy


def test_threads_are_said_and_by_whom(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.DEVICE = "cpu"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert "threads (OMP_NUM_THREADS)" in doctor_engine.look_at_device().text
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert "threads (torch's own choice)" in doctor_engine.look_at_device().text


def drop_weight(checkpoint: Path, *, misshapen: bool) -> None:
    """Take a weight away, or give it another shape."""
    path = checkpoint / "model.safetensors"
    weights = {key: tensor.clone() for key, tensor in load_file(path).items()}
    tensor = weights.pop("text_model.model.norm.weight")
    if misshapen:
        weights["text_model.model.norm.weight"] = torch.ones(len(tensor) + 1)
    save_file(weights, path)


@pytest.mark.parametrize(
    ("damage", "level", "words"),
    [
        (partial(drop_weight, misshapen=False), "fail", "norm.weight"),
        (partial(drop_weight, misshapen=True), "fail", "norm.weight"),
        (lambda folder: (folder / "codec.pth").unlink(), "fail", "codec.pth"),
        (lambda folder: (folder / "card.json").write_text(
            '{"name": "x", "licence": "y", "speeks": true}'), "fail", "speeks"),
        (lambda folder: (folder / "card.json").write_text(
            '{"name": "x", "licence": "y", "speaks": false}'), "warn", "noise instead of speech"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_checkpoint_is_named(
    damage: Callable[[Path], object], level: str, words: str, tmp_path: Path, settings: Settings
) -> None:
    settings.CHECKPOINT = shutil.copytree(PROJECT / "synth" / "demo", tmp_path / "checkpoint")
    damage(settings.CHECKPOINT)
    found = doctor_engine.look_at_checkpoint()
    assert (found.level, words in found.text) == (level, True)


def test_broken_check_is_a_failure_and_hides_no_other_one() -> None:
    def broken() -> Finding:
        raise RuntimeError("it broke\nat length")

    found = list(run_checks([("a", broken), ("b", lambda: Finding("ok", "fine"))]))
    broke = Finding("fail", "RuntimeError: it broke", name="a")
    assert found == [broke, Finding("ok", "fine", name="b")]


@pytest.mark.parametrize(
    ("slots", "positions", "level", "words"),
    [
        (0, 1024, "ok", ["16 slots (chosen by the engine) of 1024 positions",
                         "this container has 1.0 GB free"]),
        (512, 4096, "fail", ["512 slots of 4096 positions need", "TTS_ENGINE_SLOTS to "]),
        (96, 4096, "warn", ["3.0 GB are in use now"]),  # others leave no room for them
    ],
)  # fmt: skip
def test_memory_says_how_many_slots_the_engine_will_have_or_why_not(
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    slots: int,
    positions: int,
    level: str,
    words: list[str],
) -> None:
    settings.CHECKPOINT, settings.DEVICE = PROJECT / "synth" / "demo", "cpu"
    settings.ENGINE_SLOTS, settings.ENGINE_MAX_POSITIONS = slots, positions
    memory = DeviceMemory(10**9, 4 * 10**9, "this container")
    monkeypatch.setattr(doctor_engine, "find_memory", lambda _: memory)
    found = doctor_engine.look_at_memory()
    assert found.level == level
    assert [one for one in words if one not in found.text] == []
    if level == "ok":
        assert found.rows[0]["total_bytes"] == sum(found.rows[0]["parts"].values()) <= 10**9
        assert any("keys and values of the slots" in line for line in found.table)


def test_profiles_grow_with_the_device_and_shrink_with_the_positions() -> None:
    found = doctor_engine.look_at_profiles()
    slots = {(row["device_gb"], row["max_positions"]): row["slots"] for row in found.rows}
    assert len(slots) == 15
    assert all(slots.values()), "the model fits on each of these"
    sizes = (16, 24, 48, 80, 141)
    for positions in (1024, 2048, 4096):
        column = [slots[size, positions] for size in sizes]
        assert column == sorted(column), positions
    assert all(slots[size, 1024] > slots[size, 2048] > slots[size, 4096] for size in sizes)
    for row in found.rows:
        assert row["total_bytes"] <= row["device_gb"] * 10**9
    assert found.line().count("\n") == 6
