"""`./tts doctor`: what it finds, what it says about it, and its exit code."""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import socket
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
from workers.doctor import engine, system
from workers.doctor.system import Finding, run_checks

LINES = {
    "python",
    "settings",
    "codecs",
    "database",
    "broker",
    "storage",
    "workers",
    "port",
    "torch",
    "device",
    "numbers",
    "resampler",
    "checkpoint",
    "asr",
    "memory",
    "profiles",
}


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


def test_folder_that_cannot_be_made_fails(tmp_path: Path, settings: Settings) -> None:
    (tmp_path / "file").write_text("in the way")
    settings.STORAGES = settings.STORAGES | {
        "default": {
            "BACKEND": "ttsweb.storage.AtomicFileSystemStorage",
            "OPTIONS": {"location": tmp_path / "file" / "storage"},
        }
    }

    found = system.look_at_storage()

    assert found.level == "fail"
    assert "TTS_STORAGE_DIR" in found.remedy


def test_disk_under_the_floor_of_free_space_fails(settings: Settings) -> None:
    settings.MIN_FREE_BYTES = 10**18

    found = system.look_at_storage()

    assert found.level == "fail"
    assert "workers start no new work" in found.remedy


def test_mistyped_setting_is_a_warning(settings: Settings) -> None:
    settings.UNKNOWN_VARIABLES = ["TTS_DEVISE is set, but this setting does not exist"]

    found = system.look_at_settings()

    assert (found.level, found.remedy) == ("warn", "correct or remove it")
    assert "TTS_DEVISE" in found.text


def test_port_of_another_program_is_a_warning(settings: Settings) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        settings.HOST, settings.PORT = holder.getsockname()
        found = system.look_at_port()

    assert found.level == "warn"
    assert "--port auto" in found.remedy


def test_address_without_allowed_hosts_fails(settings: Settings) -> None:
    settings.HOST = "0.0.0.0"
    settings.ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]

    found = system.look_at_port()

    assert found.level == "fail"
    assert "TTS_ALLOWED_HOSTS" in found.text


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

    found = system.look_at_workers()

    assert found.level == level
    assert text in found.text


def test_forced_builtin_resampler_is_named(settings: Settings) -> None:
    settings.ENGINE_WITHOUT = ["torchaudio"]

    assert engine.look_at_resampler().text.startswith("builtin ")


def test_resampler_is_named_with_how_torchaudio_imports_and_how_far_both_are_apart() -> None:
    found = engine.look_at_resampler()

    assert found.level == "ok"
    assert found.text.startswith("torchaudio (torchaudio 2.")
    apart = re.search(r"by at most (\S+)", found.text)
    assert apart is not None and float(apart[1]) <= 1e-6


def test_torchaudio_that_does_not_import_is_said_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = TorchaudioImport(None, "ModuleNotFoundError: No module named 'torchaudio'")
    for module in (engine, resample):
        monkeypatch.setattr(module, "import_torchaudio", lambda: missing)

    assert engine.look_at_resampler().text == (
        "builtin (torchaudio cannot be imported (ModuleNotFoundError: "
        "No module named 'torchaudio'))"
    )


def test_device_that_is_not_there_fails(settings: Settings) -> None:
    settings.DEVICE = "cuda:77"

    found = engine.look_at_device()

    assert found.level == "fail"
    assert "cuda:77" in found.text


def test_threads_are_said_with_who_chose_them(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DEVICE = "cpu"

    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert "threads (OMP_NUM_THREADS)" in engine.look_at_device().text
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert "threads (torch's own choice)" in engine.look_at_device().text


@pytest.mark.parametrize("change", ["missing", "misshapen"])
def test_weight_that_is_not_right_is_named(
    checkpoint: Path, settings: Settings, change: str
) -> None:
    name = "text_model.model.norm.weight"
    path = checkpoint / "model.safetensors"
    weights = {key: tensor.clone() for key, tensor in load_file(path).items()}
    tensor = weights.pop(name)
    if change == "misshapen":
        weights[name] = torch.ones(len(tensor) + 1)
    save_file(weights, path)
    settings.CHECKPOINT = checkpoint

    found = engine.look_at_checkpoint()

    assert found.level == "fail"
    assert "norm.weight" in found.text


def test_missing_codec_is_named(checkpoint: Path, settings: Settings) -> None:
    (checkpoint / "codec.pth").unlink()
    settings.CHECKPOINT = checkpoint

    found = engine.look_at_checkpoint()

    assert found.level == "fail"
    assert "codec.pth" in found.text


@pytest.mark.parametrize(
    ("card", "level", "words"),
    [
        ('{"name": "x", "licence": "y", "speeks": true}', "fail", "speeks"),
        ('{"name": "x", "licence": "y", "speaks": false}', "warn", "noise instead of speech"),
    ],
)
def test_card_is_read(
    checkpoint: Path, settings: Settings, card: str, level: str, words: str
) -> None:
    (checkpoint / "card.json").write_text(card)
    settings.CHECKPOINT = checkpoint

    found = engine.look_at_checkpoint()

    assert found.level == level
    assert words in found.text


def test_broken_check_is_a_failure_and_hides_no_other_one() -> None:
    def broken() -> Finding:
        raise RuntimeError("it broke\nat length")

    found = list(run_checks([("a", broken), ("b", lambda: Finding("ok", "b", "fine"))]))

    assert found == [Finding("fail", "a", "RuntimeError: it broke"), Finding("ok", "b", "fine")]
