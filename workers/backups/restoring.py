"""Bring an installation back from a backup: all of it into an empty one, or objects that lack."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files.base import File
from django.core.files.storage import default_storage
from django.db import connection

from synth.models import WebhookSecret
from ttsweb.commands.base import BaseCommand, StepError, reporting_errors, signals_interrupt
from ttsweb.encryption import SecretUnreadableError
from ttsweb.private_files import FILE_MODE
from ttsweb.refusals import counted
from workers.backups.folder import (
    DATABASES,
    OBJECTS_LIST,
    SECRET_KEY,
    Kept,
    check_programs,
    damaged,
    digest_of_file,
    find_backup,
    is_database_empty,
    newer,
    path_of,
    put_database_back,
    read_manifest,
    read_objects,
    sync_file,
    unknown_migrations,
)
from workers.objects import Progress, digest_of, named_objects


def run(command: BaseCommand, options: dict[str, Any]) -> None:
    """Restore, and say what there is now and what is still to be done."""
    progress = Progress(command.stderr, is_shown=not options["json"])
    step = restore_missing if options["missing"] else restore_all
    with reporting_errors(command.stdout, as_json=options["json"]), signals_interrupt():
        try:
            told = step(find_backup(Path(options["folder"]).absolute()), progress)
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            raise StepError(
                "restore_failed",
                f"{error.strerror or error}{where}. Run the same line again once that is mended.",
            ) from error
    progress.end()
    if options["json"]:
        command.stdout.write(json.dumps(told))
        return
    for line in told["said"]:
        command.stdout.write(line)


def restore_all(backup: Path, progress: Progress) -> dict[str, Any]:
    """Make an empty installation that of the backup; the database comes last, all at once.

    Raises:
        StepError: backup_damaged, backup_newer, backup_of_other_database, not_empty,
            program_missing, database_copy_failed.
        OSError: the storage or the data folder cannot be written.
    """
    manifest, objects = _checked(backup)
    check_programs("pg_restore")
    _check_empty(objects)
    for key, kept in objects.items():
        path = path_of(backup, key)
        if not path.is_file() or path.stat().st_size != kept.size or _differs(path, kept):
            raise damaged(f"{path} is not what the backup's list says")
        progress.step()
    for key, kept in objects.items():
        _put(backup, key, kept)
        progress.step()
    said = [
        f"Restored  {manifest['made_at']}, version {manifest['version']}",
        f"Objects   {counted(len(objects), 'object')}, {manifest['bytes'] / 1e6:.1f} MB",
    ]
    said.append(f"Key       {_put_key(backup)}")
    put_database_back(backup / DATABASES[manifest["database"]])
    unreadable = 0 if manifest["secret_key"] else _unreadable_secrets()
    if unreadable:
        said.append(
            f"          {counted(unreadable, 'webhook secret')} cannot be read with this "
            "TTS_SECRET_KEY: put the former one into TTS_SECRET_KEY_FALLBACKS"
        )
    said.append("Next      ./tts serve brings the database to this version and starts")
    about = {name: manifest[name] for name in ("version", "made_at", "objects", "bytes")}
    return about | {"path": str(backup), "unreadable_secrets": unreadable, "said": said}


def restore_missing(backup: Path, progress: Progress) -> dict[str, Any]:
    """Put back what rows name and is not stored, or is not what the backup has under that name.

    It may be done while the service runs: objects do not change, and rows stay as they are.

    Raises:
        StepError: backup_damaged, backup_newer, backup_of_other_database.
    """
    _, objects = _checked(backup)
    restored, left, seen = [], [], set()
    for one in named_objects():
        progress.step()
        if one.key in seen:
            continue
        seen.add(one.key)
        kept = objects.get(one.key)
        if kept is not None and _is_stored(one.key, kept):
            continue
        if kept is None:
            left += [] if default_storage.exists(one.key) else [one.key]
            continue
        if _differs(path_of(backup, one.key), kept):
            raise damaged(f"{path_of(backup, one.key)} is not what the backup's list says")
        _put(backup, one.key, kept)
        restored.append(one.key)
    said = [f"restored  {key}" for key in restored]
    said += [f"missing, and not in this backup  {key}" for key in left]
    said.append(f"{counted(len(restored), 'object')} restored, {len(left)} still missing")
    return {"path": str(backup), "restored": restored, "missing": left, "said": said}


def _checked(backup: Path) -> tuple[dict[str, Any], dict[str, Kept]]:
    """Return a backup's manifest and objects, once it is known to be whole and ours to use."""
    manifest = read_manifest(backup)
    if unknown_migrations(manifest["migrations"]):
        raise newer(str(manifest["version"]))
    if manifest["database"] != connection.vendor:
        raise StepError(
            "backup_of_other_database",
            f"This backup is of {manifest['database']}, and this installation uses "
            f"{connection.vendor}: set TTS_DATABASE_URL to a database of that kind.",
        )
    for name, digest in (
        (DATABASES[manifest["database"]], manifest["database_sha256"]),
        (OBJECTS_LIST, manifest["objects_sha256"]),
    ):
        if not (backup / name).is_file() or digest_of_file(backup / name) != digest:
            raise damaged(f"{backup / name} is missing or not what the manifest says")
    return manifest, read_objects(backup)


def _check_empty(objects: Mapping[str, Kept]) -> None:
    """Refuse an installation that has anything but what a restore that was cut off has put there.

    Raises:
        StepError: not_empty.
    """
    if not is_database_empty():
        raise StepError(
            "not_empty",
            "The database has tables already. Restore into a new one: set TTS_DATA_DIR to a new "
            "folder, or TTS_DATABASE_URL to a new database, before the first start.",
        )
    for key in _stored(""):
        if key not in objects:
            raise StepError(
                "not_empty",
                f"The storage holds {key}, which is not of this backup. Restore into an empty "
                "storage: set TTS_DATA_DIR to a new folder, or TTS_STORAGE to a new place.",
            )


def _stored(folder: str) -> Iterator[str]:
    """Yield the keys in the storage, without having listed all."""
    try:
        folders, files = default_storage.listdir(folder)
    except FileNotFoundError:
        return
    start = f"{folder}/" if folder else ""
    yield from (start + name for name in files)
    for name in folders:
        yield from _stored(start + name)


def _is_stored(key: str, kept: Kept) -> bool:
    try:
        return default_storage.size(key) == kept.size and digest_of(key)[0] == kept.sha256
    except FileNotFoundError:
        return False


def _differs(path: Path, kept: Kept) -> bool:
    return not path.is_file() or digest_of_file(path) != kept.sha256


def _put(backup: Path, key: str, kept: Kept) -> None:
    """Store an object under its own name, once."""
    if default_storage.exists(key):
        if _is_stored(key, kept):
            return
        default_storage.delete(key)
    with path_of(backup, key).open("rb") as file:
        stored = default_storage.save(key, File(file))
    if stored != key:  # somebody stored another object under this name in this moment
        default_storage.delete(stored)
        raise OSError(f"{key} was stored by another process meanwhile")


def _put_key(backup: Path) -> str:
    """Put the secret key into the data folder, where that is the one in use; say what was done."""
    source, target = backup / SECRET_KEY, settings.DATA_DIR / SECRET_KEY
    if not source.is_file():
        return "the backup has none; TTS_SECRET_KEY has to be the one of before"
    if not settings.IS_EMBEDDED or "TTS_SECRET_KEY" in os.environ:
        return f"TTS_SECRET_KEY stays as it is; the backup's key is in {source}"
    temporary = target.with_name(f".{target.name}.restored")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(source.read_bytes())
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(target)
    sync_file(target.parent)
    return f"restored to {target}"


def _unreadable_secrets() -> int:
    count = 0
    for row in WebhookSecret.objects.all():
        try:
            _ = row.secret
        except SecretUnreadableError:
            count += 1
    connection.close()
    return count
