"""./tts doctor --production: each finding, its level and what to do; `check --deploy` is clean."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from django.utils import timezone
from pytest_django import Settings
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from lab import servers
from synth.models import SweepTurn
from tests.factories import make_worker
from tests.workers.commands import run
from workers.local import doctor_production
from workers.local.doctor import Finding

PRODUCTION = {
    "TTS_BEHIND_HTTPS_PROXY": "true",
    "TTS_ALLOWED_HOSTS": "tts.example.org",
    "TTS_SECRET_KEY": "0123456789abcdef" * 4,
}


@pytest.fixture
def guarded_redis(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """What starts a Redis with these options and returns its port."""
    started = []

    def start(*options: str, password: str = "") -> str:
        program = servers.find_redis()
        assert program is not None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [program, "--bind", "127.0.0.1", "--port", str(port), "--save", ""]
        command += ["--dir", str(tmp_path), *options]
        command += ["--requirepass", password] if password else []
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        retry = Retry(ConstantBackoff(0.02), 750)
        with redis.Redis(port=port, password=password or None, retry=retry) as client:
            client.ping()
        return str(port)

    yield start
    for process in started:
        process.terminate()
        process.wait(60)


def test_a_deployment_is_clean_by_django_s_own_checks(clean_env: dict[str, str]) -> None:
    ended = run(clean_env | PRODUCTION, "check", "--deploy", "--fail-level", "WARNING")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "no issues" in ended.stdout


def test_command_looks_and_makes_nothing(clean_env: dict[str, str]) -> None:
    ended = run(clean_env | PRODUCTION, "doctor", "--production", "--json")
    answer = json.loads(ended.stdout)
    found = {one["name"]: one for one in answer["findings"]}
    assert (ended.returncode, answer["failed"]) == (0, 0)
    assert found["deploy"]["level"] == found["https"]["level"] == found["hosts"]["level"] == "ok"
    assert found["backup"]["level"] == "warn"
    for one in answer["findings"]:
        assert (one["level"] == "ok") == (not one["remedy"]), one
    assert not (Path(clean_env["TTS_DATA_DIR"]) / "db.sqlite3").exists()
    assert "torch" not in found


def test_what_is_not_fit_fails_with_what_to_do(clean_env: dict[str, str]) -> None:
    weak = {"TTS_SECRET_KEY": "s" * 50, "TTS_ALLOWED_HOSTS": "*"}
    ended = run(clean_env | weak, "doctor", "--production")
    assert ended.returncode == 1
    for said in (
        r"fail +https +.*deploy/nginx/ttsweb\.conf.*TTS_BEHIND_HTTPS_PROXY=true",
        r"fail +hosts +every Host header.*TTS_ALLOWED_HOSTS",
        r"fail +secret +TTS_SECRET_KEY has 50 characters, 1 different.*openssl rand",
    ):
        assert re.search(said, ended.stdout), ended.stdout
    assert "ssssss" not in ended.stdout


@pytest.mark.redis
def test_redis_has_a_password_and_evicts_nothing(
    guarded_redis: Callable[..., str], settings: Settings
) -> None:
    opened, port = guarded_redis(), guarded_redis(password="hunter2")
    evicting = guarded_redis("--maxmemory-policy", "allkeys-lru", password="hunter2")
    cases = [
        (f"redis://127.0.0.1:{opened}/0", "fail", "answers without a password"),
        (f"redis://:hunter2@127.0.0.1:{opened}/0", "fail", "without a password"),
        (f"redis://:hunter2@127.0.0.1:{port}/0", "ok", "evicts nothing"),
        (f"redis://:hunter2@127.0.0.1:{evicting}/0", "fail", "allkeys-lru"),
    ]
    for url, level, said in cases:
        settings.REDIS_URL = url
        finding = doctor_production.look_at_redis()
        assert finding.level == level and said in finding.text, finding
        assert "hunter2" not in finding.line()


@pytest.mark.postgres
def test_a_database_that_trusts_everybody_fails(
    clean_env: dict[str, str], postgres_url: str
) -> None:
    try:
        psycopg.connect(postgres_url, password="", passfile="/nonexistent").close()
    except psycopg.OperationalError:
        level, said = "ok", "asks for a password"
    else:
        level, said = "fail", "without a password"
    environment = clean_env | PRODUCTION | {"TTS_DATABASE_URL": postgres_url}
    answer = json.loads(run(environment, "doctor", "--production", "--json").stdout)
    (finding,) = [one for one in answer["findings"] if one["name"] == "postgres"]
    assert finding["level"] == level and said in finding["text"]
    (clock,) = [one for one in answer["findings"] if one["name"] == "clock"]
    assert clock["level"] == "ok" and re.search(r"differ by [\d.]+ s", clock["text"])


@pytest.mark.django_db
def test_workers_of_each_role_have_to_live() -> None:
    def look() -> Finding:
        return doctor_production.look_at_roles()

    assert "gpu and cpu" in look().text
    make_worker("gpu-1")
    assert (look().level, "role cpu" in look().text) == ("fail", True)
    late = make_worker("cpu-1", role="cpu", seconds_ago=300)
    assert look().level == "fail"
    late.last_seen_at = timezone.now()
    late.save()
    assert look().level == "ok"


@pytest.mark.django_db
@pytest.mark.parametrize(("hours", "level"), [(None, "warn"), (5, "ok"), (100, "warn")])
def test_age_of_the_newest_backup_is_told(hours: int | None, level: str) -> None:
    if hours is not None:
        made = timezone.now() - dt.timedelta(hours=hours)
        SweepTurn.objects.create(name=SweepTurn.BACKUP, next_at=made)
    finding = doctor_production.look_at_care()
    assert (finding.level, bool(finding.remedy)) == (level, level == "warn")


def test_files_that_others_can_read_fail(tmp_path: Path, settings: Settings) -> None:
    settings.DATA_DIR = tmp_path
    tmp_path.chmod(0o700)
    secret = tmp_path / "secret_key"
    secret.write_text("secret")
    secret.chmod(0o640)
    finding = doctor_production.look_at_modes()
    assert (finding.level, str(secret) in finding.text) == ("fail", True)
    secret.chmod(0o600)
    assert str(secret) not in doctor_production.look_at_modes().text
    assert doctor_production.look_at_modes().level == ("warn" if os.geteuid() == 0 else "ok")


def test_a_disk_that_fills_is_told_before_workers_stop(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path
) -> None:
    settings.DATA_DIR = tmp_path
    usage: Any = type(shutil.disk_usage("/"))
    for free, level in ((5, "warn"), (50, "ok")):
        monkeypatch.setattr(
            shutil, "disk_usage", lambda _, free=free: usage(100e9, (100 - free) * 1e9, free * 1e9)
        )
        assert doctor_production.look_at_disk().level == level


@pytest.mark.parametrize(
    ("changed", "level", "said"),
    [
        ({"CORS_ORIGINS": ["*"]}, "warn", "TTS_CORS_ORIGINS"),
        ({"ALLOW_PRIVATE_URLS": True}, "warn", "TTS_ALLOW_PRIVATE_URLS"),
        ({"ALLOWED_HOSTS": ["localhost"]}, "fail", "own names alone"),
        ({}, "ok", "tts.example.org"),
    ],
)
def test_what_is_open_to_the_outside_is_told(
    changed: dict[str, Any], level: str, said: str, settings: Settings
) -> None:
    for name, value in ({"ALLOWED_HOSTS": ["tts.example.org"]} | changed).items():
        setattr(settings, name, value)
    finding = doctor_production.look_at_hosts()
    assert finding.level == level and said in finding.text


def test_a_former_key_is_told(settings: Settings) -> None:
    settings.SECRET_KEY = "0123456789abcdef" * 4
    settings.SECRET_KEY_FALLBACKS = ["another"]
    finding = doctor_production.look_at_secret_key()
    assert (finding.level, "./tts reencrypt" in finding.remedy) == ("warn", True)
