"""Bringing the database up to date when several processes start at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from ttsweb.migration import OldDatabaseError, missing_migrations

PROJECT = Path(__file__).resolve().parent.parent.parent
MIGRATE = """
import django; django.setup()
from django.conf import settings
from ttsweb.migration import migrate_once, missing_migrations
print(migrate_once(settings.DATA_DIR), len(missing_migrations()))
"""


def start(environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MIGRATE],
        env=environment,
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def check_one_of_three_migrates(environment: dict[str, str]) -> None:
    """Start three at once: one applies everything, and nobody fails or sees half of it."""
    ended = [
        (process.communicate(timeout=120), process.returncode)
        for process in [start(environment) for _ in range(3)]
    ]

    assert [code for _, code in ended] == [0, 0, 0], [error for (_, error), _ in ended]
    counts = [[int(part) for part in output.split()] for (output, _), _ in ended]
    assert sorted(applied > 0 for applied, _ in counts) == [False, False, True]
    assert [missing for _, missing in counts] == [0, 0, 0]


def test_one_of_three_starts_migrates_sqlite(clean_env: dict[str, str]) -> None:
    check_one_of_three_migrates(clean_env)


@pytest.mark.postgres
def test_one_of_three_starts_migrates_postgresql(
    clean_env: dict[str, str], postgres_url: str
) -> None:
    check_one_of_three_migrates(
        clean_env | {"TTS_DATABASE_URL": postgres_url, "TTS_SECRET_KEY": os.urandom(30).hex()}
    )


@pytest.mark.django_db
@pytest.mark.parametrize("former", ["0001_squashed", "0001_initial"])
def test_database_of_an_early_version_is_refused_with_a_sentence(former: str) -> None:
    recorder = MigrationRecorder(connection)
    recorder.record_unapplied("synth", "0001_tables")
    recorder.record_applied("synth", former)
    with pytest.raises(OldDatabaseError, match=r"an early .* whose tables of 'synth'"):
        missing_migrations()


@pytest.mark.django_db
def test_database_with_some_of_what_was_joined_is_refused_with_a_sentence() -> None:
    recorder = MigrationRecorder(connection)
    recorder.record_unapplied("voices", "0001_squashed")
    recorder.record_unapplied("voices", "0006_losses")
    with pytest.raises(OldDatabaseError, match=r"whose tables of 'voices'"):
        missing_migrations()


@pytest.mark.django_db
def test_database_with_all_that_was_joined_lacks_nothing() -> None:
    MigrationRecorder(connection).record_unapplied("voices", "0001_squashed")
    assert missing_migrations() == []


@pytest.mark.django_db
def test_database_without_a_later_migration_lacks_it() -> None:
    MigrationRecorder(connection).record_unapplied("synth", "0001_tables")
    assert missing_migrations() == ["synth.0001_tables"]
