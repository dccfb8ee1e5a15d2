"""The form of a backup on a disk: a folder with a manifest, the database, and objects as files.

2026-11-26T01-20-30Z/
  manifest.json      what it is, with the digests of the next two
  objects.jsonl      key, sha256 and size of each object
  database.sqlite3   or database.pgdump
  secret_key         only where the data folder has one
  objects/KEY        each object; one file with that of the backup before, by a hard link
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ttsweb.commands.base import StepError

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
