"""Test what settings become: the secret key, the database, the broker, the log."""

from __future__ import annotations

import logging
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ttsweb.configuration.builders import (
    broker_settings,
    database_settings,
    read_or_make_secret_key,
    trusted_origins,
    voice_aliases,
)
from ttsweb.configuration.env import SettingError
from ttsweb.log_format import LineFormatter, log_context

PROJECT = Path(__file__).parents[3]


def test_the_embedded_key_is_made_once_and_readable_by_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "data" / "secret_key"
    first = read_or_make_secret_key(None, path=path, is_embedded=True)
    assert len(first) >= 50
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_or_make_secret_key(None, path=path, is_embedded=True) == first
    assert [entry.name for entry in path.parent.iterdir()] == ["secret_key"]


def test_a_production_start_without_a_key_stops_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="TTS_SECRET_KEY is not set"):
        read_or_make_secret_key(None, path=tmp_path / "key", is_embedded=False)
    assert not (tmp_path / "key").exists()


def test_a_given_key_wins_and_nothing_is_written(tmp_path: Path) -> None:
    assert read_or_make_secret_key("given", path=tmp_path / "key", is_embedded=True) == "given"
    assert not (tmp_path / "key").exists()


def test_a_damaged_key_file_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("short")
    with pytest.raises(SettingError, match="too short"):
        read_or_make_secret_key(None, path=tmp_path / "key", is_embedded=True)


def test_sqlite_writers_take_the_lock_at_once_and_sync_fully(tmp_path: Path) -> None:
    options = database_settings(None, data_dir=tmp_path)["OPTIONS"]
    assert options["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in options["init_command"]
    assert "synchronous=FULL" in options["init_command"]


def test_a_postgresql_address_is_taken_apart(tmp_path: Path) -> None:
    parsed = database_settings("postgresql://ann:s%40crt@db:5433/tts", data_dir=tmp_path)

    assert parsed["ENGINE"] == "django.db.backends.postgresql"
    assert (parsed["USER"], parsed["PASSWORD"], parsed["HOST"], parsed["PORT"], parsed["NAME"]) == (
        "ann",
        "s@crt",
        "db",
        5433,
        "tts",
    )


def test_the_broker_is_files_unless_redis_is_named(tmp_path: Path) -> None:
    files = broker_settings(None, data_dir=tmp_path)
    redis = broker_settings("redis://localhost/1", data_dir=tmp_path)
    assert files["broker_url"] == "filesystem://localhost"
    assert files["broker_transport_options"]["data_folder_in"].startswith(str(tmp_path))
    assert redis["broker_url"] == "redis://localhost/1"
    assert redis["broker_transport_options"]["global_keyprefix"] == "tts:"


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"TTS_PORT": "99999"}, "TTS_PORT='99999': expected a whole number from 1 to 65535"),
        (
            {"TTS_ENGINE_WITHOUT": "sox"},
            "TTS_ENGINE_WITHOUT='sox': expected some of graphs, kernels, torchaudio",
        ),
        ({"TTS_DRAIN_SECONDS": "5"}, "TTS_DRAIN_SECONDS is no longer a setting: it is 20"),
        ({"TTS_REDIS_URL": "localhost"}, "TTS_REDIS_URL='localhost': expected an address"),
        ({"TTS_REDIS_URL": "redis://h/0"}, "TTS_SECRET_KEY is not set"),
    ],
)
def test_a_bad_value_stops_the_start_with_a_sentence(
    variables: dict[str, str], sentence: str, tmp_path: Path
) -> None:
    result = start(variables, tmp_path)
    assert result.returncode != 0
    assert sentence in result.stderr


def test_a_database_url_of_another_project_is_never_used(tmp_path: Path) -> None:
    code = "from django.conf import settings; print(settings.DATABASES['default']['ENGINE'])"
    strangers = {"DATABASE_URL": "postgresql://x/y", "REDIS_URL": "redis://x/0"}
    result = start(strangers, tmp_path, code)
    assert result.stdout.strip() == "ttsweb.sqlite", result.stderr


def test_a_log_line_carries_the_ids_at_work() -> None:
    record = logging.LogRecord("workers", logging.INFO, "f.py", 1, "rendered %d", (3,), None)
    token = log_context.set("job=7 segment=2")
    try:
        text, line = LineFormatter("text").format(record), LineFormatter("json").format(record)
    finally:
        log_context.reset(token)

    assert text.endswith("INFO workers [job=7 segment=2]: rendered 3")
    assert '"context": "job=7 segment=2"' in line
    assert "[" not in LineFormatter("text").format(record).split("workers")[1]


def start(
    variables: dict[str, str], data_dir: Path, code: str = "import ttsweb.settings"
) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": "/usr/bin:/bin",
        "DJANGO_SETTINGS_MODULE": "ttsweb.settings",
        "TTS_DATA_DIR": str(data_dir),
        **variables,
    }
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_command_with_a_bad_setting_says_one_sentence(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "TTS_DATA_DIR": str(tmp_path), "TTS_PORT": "x"}

    result = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 1
    assert result.stderr == "settings: TTS_PORT='x': expected a whole number from 1 to 65535\n"


def test_other_names_of_voices_are_read_as_pairs_in_any_case() -> None:
    assert voice_aliases(["Alloy=Ada", "nova = Grace Hopper"]) == {
        "alloy": "Ada",
        "nova": "Grace Hopper",
    }


@pytest.mark.parametrize("pairs", [["alloy"], ["=Ada"], ["alloy="], ["alloy=Ada", "ALLOY=Bob"]])
def test_pair_that_is_none_or_comes_twice_stops_the_start(pairs: list[str]) -> None:
    with pytest.raises(SettingError, match="TTS_OPENAI_VOICE_ALIASES"):
        voice_aliases(pairs)


def test_pages_of_the_site_itself_are_trusted_behind_a_proxy() -> None:
    assert trusted_origins(["tts.example.org", ".example.net", "*"]) == [
        "https://tts.example.org",
        "https://example.net",
        "https://*.example.net",
    ]
