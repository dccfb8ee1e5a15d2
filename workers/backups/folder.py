"""The form of a backup on a disk: a folder with a manifest, the database, and objects as files.

2026-11-26T01-20-30Z/
  manifest.json      what it is, with the digests of the next two
  objects.jsonl      key, sha256 and size of each object
  database.sqlite3   or database.pgdump
  secret_key         only where the data folder has one
  objects/KEY        each object; one file with that of the backup before, by a hard link

The database is copied as it is at one moment while others write to it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from django.db import connection, connections, transaction
from django.db.backends.postgresql.client import DatabaseClient
from django.db.migrations.loader import MigrationLoader

from ttsweb.commands.base import StepError
from ttsweb.private_files import FILE_MODE

FORMAT = 1
MANIFEST, OBJECTS_LIST, OBJECTS, SECRET_KEY = (
    *("manifest.json", "objects.jsonl", "objects", "secret_key"),
)
DATABASES = {"sqlite": "database.sqlite3", "postgresql": "database.pgdump"}
_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d(-\d+)?Z")


class Kept(NamedTuple):
    """What a backup knows of one object."""

    sha256: str
    size: int


def backups_in(folder: Path) -> list[Path]:
    """Return the whole backups in a folder, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(
        path
        for path in folder.iterdir()
        if _NAME.fullmatch(path.name) and (path / MANIFEST).is_file()
    )


def find_backup(folder: Path) -> Path:
    """Return a backup, or the newest of a folder of backups.

    Raises:
        StepError: backup_not_found.
    """
    if (folder / MANIFEST).is_file():
        return folder
    if found := backups_in(folder):
        return found[-1]
    raise StepError(
        "backup_not_found",
        f"{folder} is no backup and holds none. Name the folder that was given to ./tts backup, "
        "or one of the folders in it.",
    )


def read_manifest(backup: Path) -> dict[str, Any]:
    """Return what a backup says of itself.

    Raises:
        StepError: backup_damaged, backup_newer.
    """
    try:
        manifest: dict[str, Any] = json.loads((backup / MANIFEST).read_text("utf-8"))
        form = int(manifest["format"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(f"{backup / MANIFEST} cannot be read ({error})") from error
    if form > FORMAT:
        raise newer(str(manifest.get("version", "unknown")))
    return manifest


def damaged(what: str) -> StepError:
    return StepError("backup_damaged", f"{what}. Nothing was changed; use another backup.")


def newer(version: str) -> StepError:
    return StepError(
        "backup_newer",
        f"This backup was made by a newer version ({version}). Nothing was changed; install that "
        "version, or a newer one, and restore with it.",
    )


def read_objects(backup: Path) -> dict[str, Kept]:
    """Return the objects of a backup by their keys.

    Raises:
        StepError: backup_damaged.
    """
    try:
        lines = (backup / OBJECTS_LIST).read_text("utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        return {row["key"]: Kept(row["sha256"], int(row["size"])) for row in rows}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(f"{backup / OBJECTS_LIST} cannot be read ({error})") from error


def object_lines(objects: Mapping[str, Kept]) -> Iterator[str]:
    for key, kept in sorted(objects.items()):
        yield json.dumps({"key": key, "sha256": kept.sha256, "size": kept.size}) + "\n"


def path_of(backup: Path, key: str) -> Path:
    """Return where an object lies; keys are the service's own and lead nowhere else.

    Raises:
        StepError: backup_damaged, where a list of objects says otherwise.
    """
    if key.startswith("/") or ".." in key.split("/"):
        raise damaged(f"{backup / OBJECTS_LIST} names {key!r}")
    return backup / OBJECTS / key


def digest_of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_file(path: Path) -> None:
    """Have a file, or a folder's list of names, outlive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


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
def database_copied_to(path: Path) -> Iterator[str]:
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


def is_database_empty() -> bool:
    """Say whether the database has no tables, as before the first start."""
    if connection.vendor == "sqlite":
        path = Path(str(connection.settings_dict["NAME"]))
        if not path.exists() or not path.stat().st_size:
            return True
    empty = not connection.introspection.table_names()
    connection.close()
    return empty


def put_database_back(path: Path) -> None:
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
