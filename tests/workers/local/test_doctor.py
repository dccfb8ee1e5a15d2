"""`./tts doctor`: what it finds, what it says about it, and its exit code."""

from __future__ import annotations

import datetime as dt
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
from django.utils import timezone
from pytest_django import Settings
from safetensors.torch import load_file, save_file

from synth.engine.codec import resample
from synth.engine.codec.torchaudio_import import TorchaudioImport
from synth.models import WorkerStatus
from tests.workers.commands import PROJECT, one_object, run
from workers.local import doctor, doctor_engine
from workers.local.doctor import Check, Finding, run_checks

LINES = {name for name, _ in (*doctor.CHECKS, *doctor_engine.CHECKS)}


def findings(environment: dict[str, str]) -> tuple[int, dict[str, dict[str, Any]]]:
    """Run the command; return its exit code and the findings by name."""
    ended = run(environment, "doctor", "--json")
    answer: dict[str, Any] = one_object(ended.stdout)
    found = {finding["name"]: finding for finding in answer["findings"]}
    assert answer["failed"] == sum(finding["level"] == "fail" for finding in found.values())
    return ended.returncode, found


@pytest.fixture
def own_port(clean_env: dict[str, str]) -> dict[str, str]:
    """The environment, with a port that nobody else listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return clean_env | {"TTS_PORT": str(probe.getsockname()[1])}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A copy of the demo checkpoint, to be damaged."""
    folder = tmp_path / "checkpoint"
    shutil.copytree(PROJECT / "synth" / "demo", folder)
    return folder


def test_fresh_installation_is_in_order_and_nothing_is_left_in_the_storage(
    own_port: dict[str, str],
) -> None:
    code, found = findings(own_port)

    assert set(found) == LINES
    assert len(LINES) == 16
    assert {name for name, finding in found.items() if finding["level"] == "fail"} == set()
    assert code == 0
    assert "1.8 M parameters" in found["checkpoint"]["text"]
    assert {row["device_gb"] for row in found["profiles"]["rows"]} == {16, 24, 48, 80, 141}
    assert "Apache-2.0" in found["checkpoint"]["text"]
    storage = Path(own_port["TTS_DATA_DIR"]) / "storage"
    assert list(storage.iterdir()) == []
    assert not (storage.parent / "db.sqlite3").exists(), "looking must not make a database"


def test_lines_for_people_hold_level_name_and_remedy(own_port: dict[str, str]) -> None:
    ended = run(own_port | {"TTS_CHECKPOINT": "/nonexistent"}, "doctor")
    lines = [line for line in ended.stdout.splitlines() if not line.startswith(" ")]
    assert ended.returncode == 1
    assert {line.split()[1] for line in lines} == LINES
    failed = {line.split()[1]: line for line in lines if line.startswith("fail")}
    assert set(failed) == {"numbers", "checkpoint", "memory"}
    assert "-> set TTS_CHECKPOINT to" in failed["checkpoint"]


def test_services_that_are_away_fail_and_no_password_is_shown(own_port: dict[str, str]) -> None:
    environment = own_port | {
        "TTS_DATABASE_URL": "postgresql://ada:hunter2@127.0.0.1:1/ttsweb",
        "TTS_REDIS_URL": "redis://:hunter2@127.0.0.1:1/0",
        "TTS_SECRET_KEY": os.urandom(30).hex(),
    }

    ended = run(environment, "doctor")

    lines = [line for line in ended.stdout.splitlines() if not line.startswith(" ")]
    levels = {line.split()[1]: line.split()[0] for line in lines}
    assert ended.returncode == 1
    assert (levels["database"], levels["broker"], levels["storage"]) == ("fail", "fail", "ok")
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
    settings.STORAGES = settings.STORAGES | {
        "default": {
            "BACKEND": "ttsweb.storage.AtomicFileSystemStorage",
            "OPTIONS": {"location": tmp_path / "file" / "storage"},
        }
    }

    found = doctor.look_at_storage()

    assert found.level == "fail"
    assert "TTS_STORAGE_DIR" in found.remedy


def test_port_of_another_program_is_a_warning(settings: Settings) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        settings.HOST, settings.PORT = holder.getsockname()
        found = doctor.look_at_port()
    assert found.level == "warn"
    assert "--port auto" in found.remedy


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("state", "seconds_ago", "level", "text"),
    [
        ("ready", 0, "ok", "w-1 all ready"),
        ("failed", 0, "fail", "w-1 all failed"),
        ("ready", 3600, "ok", "none is running"),
    ],
)
def test_worker_is_shown_as_it_last_said(
    state: str, seconds_ago: int, level: str, text: str
) -> None:
    seen = timezone.now() - dt.timedelta(seconds=seconds_ago)
    WorkerStatus.objects.create(
        name="w-1", role="all", state=state, started_at=seen, last_seen_at=seen
    )
    found = doctor.look_at_workers()
    assert found.level == level
    assert text in found.text


def test_resampler_is_named_with_how_torchaudio_imports_and_how_far_both_are_apart() -> None:
    found = doctor_engine.look_at_resampler()
    assert found.level == "ok"
    assert found.text.startswith("torchaudio (torchaudio 2.")
    apart = re.search(r"by at most (\S+)", found.text)
    assert apart is not None and float(apart[1]) <= 1e-6


def test_torchaudio_that_does_not_import_is_said_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = TorchaudioImport(None, "ModuleNotFoundError: No module named 'torchaudio'")
    for module in (doctor_engine, resample):
        monkeypatch.setattr(module, "import_torchaudio", lambda: missing)
    assert doctor_engine.look_at_resampler().text == (
        "builtin (torchaudio cannot be imported (ModuleNotFoundError: "
        "No module named 'torchaudio'))"
    )


def test_threads_are_said_with_who_chose_them(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    damage: Callable[[Path], object], level: str, words: str, checkpoint: Path, settings: Settings
) -> None:
    damage(checkpoint)
    settings.CHECKPOINT = checkpoint
    found = doctor_engine.look_at_checkpoint()
    assert found.level == level
    assert words in found.text


def test_broken_check_is_a_failure_and_hides_no_other_one() -> None:
    def broken() -> Finding:
        raise RuntimeError("it broke\nat length")

    found = list(run_checks([("a", broken), ("b", lambda: Finding("ok", "fine"))]))
    assert found == [
        Finding("fail", "RuntimeError: it broke", name="a"),
        Finding("ok", "fine", name="b"),
    ]
