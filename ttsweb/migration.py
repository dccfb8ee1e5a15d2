"""Bring the database to this version's tables; of several starts at once one does it."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.core.management import call_command
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor


class OldDatabaseError(DatabaseError):
    """The database is of a version that this one cannot bring up to date by itself."""


_ADVISORY_LOCK = 7_484_115_001  # ours alone in a database that other programs may share


def migrate_once(lock_folder: Path) -> int:
    """Apply what is missing and return how many migrations that were.

    Args:
        lock_folder: where processes on SQLite meet; PostgreSQL has a lock of its own.

    Raises:
        django.db.Error: the database cannot be reached or refuses a change.
        OSError: the folder cannot be written.
    """
    if not missing_migrations():
        return 0
    with _lock(lock_folder):
        missing = missing_migrations()
        if missing:
            call_command("migrate", interactive=False, verbosity=0)
            if connection.vendor == "sqlite":  # what a migration wiped is not to stay in the log
                with connection.cursor() as cursor:
                    cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return len(missing)


def missing_migrations() -> list[str]:
    """Return the names of migrations that this version has and the database lacks.

    Raises:
        OldDatabaseError: a development version made it, by migrations that this one does not have.
    """
    executor = MigrationExecutor(connection)
    applied, on_disk = set(executor.loader.applied_migrations), executor.loader.disk_migrations
    known = {*on_disk, *(one for migration in on_disk.values() for one in migration.replaces)}
    for key, migration in on_disk.items():
        former = set(migration.replaces)
        has_foreign = any(label == key[0] for label, _ in applied - known)
        if key not in applied and (has_foreign or (former & applied and former - applied)):
            raise OldDatabaseError(
                f"This database is of an early development version, whose tables of {key[0]!r} "
                "this version cannot bring up to date. Set TTS_DATA_DIR to a new folder, or "
                "TTS_DATABASE_URL to a new database."
            )
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", [_ADVISORY_LOCK])
            try:
                yield
            finally:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [_ADVISORY_LOCK])
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "migrate.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # given back when the file is closed
        yield
