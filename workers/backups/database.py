"""Copy the database as it is at one moment while others write to it, and put a copy back."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.db import connection, connections, transaction
from django.db.backends.postgresql.client import DatabaseClient
from django.db.migrations.loader import MigrationLoader

from ttsweb.commands.base import StepError
from ttsweb.private_files import FILE_MODE
from workers.backups.folder import sync_file

_COPY = "copy"  # a connection to the copy, beside that to the database


def find_program(name: str) -> str:
    """Return a program of PostgreSQL's client.

    Raises:
        StepError: program_missing.
    """
    found = shutil.which(name)
    if found is None:
        raise StepError(
            "program_missing",
            f"{name} was not found. Install PostgreSQL's client of the server's version or a "
            "newer one (apt install postgresql-client), and run this again.",
        )
    return found


def check_programs(*names: str) -> None:
    if connection.vendor == "postgresql":
        for name in names:
            find_program(name)


@contextmanager
def copied_to(path: Path) -> Iterator[str]:
    """Copy the database into a file, and give the name of a connection that sees the same rows.

    Raises:
        StepError: program_missing, database_copy_failed.
    """
    if connection.vendor == "postgresql":
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute("SELECT pg_export_snapshot()")
            (snapshot,) = cursor.fetchone()
            _run("pg_dump", f"--snapshot={snapshot}", "--format=custom", f"--file={path}")
            yield "default"
    else:
        _copy_sqlite(path)
        connections.databases[_COPY] = connection.settings_dict | {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(path),
            "OPTIONS": {},
        }
        try:
            yield _COPY
        finally:
            connections[_COPY].close()
            del connections[_COPY], connections.databases[_COPY]
    sync_file(path)


def _copy_sqlite(path: Path) -> None:
    """Copy in one step, which holds writers up nowhere and is not begun again for them."""
    path.unlink(missing_ok=True)
    connection.ensure_connection()
    target = sqlite3.connect(path)
    try:
        connection.connection.backup(target, pages=-1)
        target.execute("PRAGMA journal_mode=DELETE")  # so that it is one file
        (state,) = target.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        raise StepError("database_copy_failed", f"SQLite cannot copy: {error}.") from error
    finally:
        target.close()
    if state != "ok":
        raise StepError(
            "database_copy_failed",
            f"The database is damaged: {state}. Restore the newest backup that is whole.",
        )


def _run(program: str, *options: str) -> None:
    """Run a program of PostgreSQL on our database; the password is in its environment alone."""
    values: dict[str, Any] = connection.settings_dict
    _, given = DatabaseClient.settings_to_cmd_args_env(values, [])
    given = (given or {}) | {
        name: str(value)
        for name, value in (
            *(("PGHOST", values["HOST"]), ("PGPORT", values["PORT"])),
            *(("PGUSER", values["USER"]), ("PGDATABASE", values["NAME"])),
        )
        if value
    }
    command = [find_program(program), "--no-password", *options]
    ended = subprocess.run(
        command, env=os.environ | given, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        said = next((line for line in ended.stderr.splitlines() if line.strip()), "no reason given")
        raise StepError("database_copy_failed", f"{program} failed: {said}")


def is_empty() -> bool:
    """Say whether the database has no tables, as before the first start."""
    if connection.vendor == "sqlite":
        path = Path(str(connection.settings_dict["NAME"]))
        if not path.exists() or not path.stat().st_size:
            return True
    empty = not connection.introspection.table_names()
    connection.close()
    return empty


def put_back(path: Path) -> None:
    """Make the empty database what a copy is, all at once.

    Raises:
        StepError: program_missing, database_copy_failed.
        OSError: the file cannot be written.
    """
    if connection.vendor == "postgresql":
        options = ("--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error")
        name = connection.settings_dict["NAME"]
        _run("pg_restore", *options, f"--dbname={name}", str(path))
        return
    connection.close()
    target = Path(str(connection.settings_dict["NAME"]))
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.restored")
    shutil.copyfile(path, temporary)
    temporary.chmod(FILE_MODE)
    sync_file(temporary)
    for ending in ("-wal", "-shm"):  # of an empty one
        target.with_name(f"{target.name}{ending}").unlink(missing_ok=True)
    temporary.replace(target)
    sync_file(target.parent)


def applied_migrations() -> list[str]:
    loader = MigrationLoader(connection)
    return sorted(f"{app}.{name}" for app, name in loader.applied_migrations)


def unknown_migrations(names: list[str]) -> list[str]:
    """Return those of a backup's migrations that this version does not have."""
    disk = MigrationLoader(None).disk_migrations
    known = set(disk) | {old for one in disk.values() for old in one.replaces}
    return sorted(set(names) - {f"{app}.{name}" for app, name in known})
