"""Make a backup while the service runs: rows as they are at one moment, and all that they name."""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection

from synth.models import SweepTurn
from ttsweb import leases
from ttsweb.commands.base import (
    BaseCommand,
    StepError,
    UsageError,
    reporting_errors,
    signals_interrupt,
)
from ttsweb.private_files import FILE_MODE, FOLDER_MODE
from ttsweb.refusals import counted
from workers.backups.folder import (
    DATABASES,
    FORMAT,
    MANIFEST,
    OBJECTS,
    OBJECTS_LIST,
    SECRET_KEY,
    Kept,
    applied_migrations,
    backups_in,
    check_programs,
    damaged,
    database_copied_to,
    digest_of_file,
    object_lines,
    path_of,
    read_objects,
    sync_file,
    write_synced,
)
from workers.objects import NamedObject, Progress, digest_of, named_objects

PART = ".part"  # a backup that is not whole; the next one goes on with its objects
# What is deleted between the rows' copy and its objects' is looked at again in a later copy.
MOST_COPIES = 5


@dataclass
class Making:
    """One backup on its way: what is in it so far, and what the one before it has."""

    part: Path
    before: Path | None
    known: Mapping[str, Kept]
    objects: dict[str, Kept] = field(default_factory=dict)
    copied: int = 0
    linked: int = 0
    folders: set[Path] = field(default_factory=set)

    def keep(self, key: str) -> None:
        """Have an object in the backup.

        Raises:
            FileNotFoundError: it is not stored.
            OSError: the storage or the disk of the backup does not work.
        """
        if key in self.objects:
            return
        target = path_of(self.part, key)
        target.parent.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
        folder = target.parent
        while folder != self.part.parent and folder not in self.folders:
            self.folders.add(folder)
            folder = folder.parent
        if target.exists():  # of a backup that was cut off
            self.objects[key] = Kept(digest_of_file(target), target.stat().st_size)
        elif not self._link(key, target):
            self._copy(key, target)

    def _link(self, key: str, target: Path) -> bool:
        """Use the file of the backup before, as an object never changes."""
        kept = self.known.get(key)
        if kept is None or self.before is None:
            return False
        source = path_of(self.before, key)
        try:
            if source.stat().st_size != kept.size:
                return False
            target.hardlink_to(source)
        except OSError:  # gone, or on a disk without hard links
            return False
        self.objects[key] = kept
        self.linked += 1
        return True

    def _copy(self, key: str, target: Path) -> None:
        temporary = target.with_name(f".{target.name}.tmp")
        try:
            with temporary.open("wb") as file:
                digest, size = digest_of(key, file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        self.objects[key] = Kept(digest, size)
        self.copied += 1

    def keep_rows(self, name: str, progress: Progress) -> tuple[list[NamedObject], list[str]]:
        """Copy the database, and what its rows name and is not there yet.

        Returns:
            The objects that are not stored or are not what their rows say, and the keys of all.
        """
        unfit, keys = [], []
        with database_copied_to(self.part / name) as using:
            for one in named_objects(using):
                keys.append(one.key)
                try:
                    self.keep(one.key)
                except FileNotFoundError:
                    unfit.append(one)
                else:
                    if one.sha256 and one.sha256 != self.objects[one.key].sha256:
                        unfit.append(one)
                progress.step()
        return unfit, keys

    def drop_others(self, keys: list[str]) -> None:
        """Remove what the rows do not name: it was deleted while the backup was made."""
        named = set(keys)
        for path in list((self.part / OBJECTS).rglob("*")):
            key = path.relative_to(self.part / OBJECTS).as_posix()
            if path.is_file() and key not in named:
                path.unlink()
                self.objects.pop(key, None)


def run(command: BaseCommand, options: dict[str, Any]) -> None:
    """Make one, say what is in it; exit code 1 where an object is missing or damaged."""
    if options["keep"] is not None and options["keep"] < 1:
        raise UsageError("--keep must be at least 1")
    with reporting_errors(command.stdout, as_json=options["json"]), signals_interrupt():
        try:
            told = make_backup(
                Path(options["folder"]).absolute(),
                keep=options["keep"],
                progress=Progress(command.stderr, is_shown=not options["json"]),
            )
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            raise StepError(
                "backup_failed",
                f"{error.strerror or error}{where}. No backup was made; those before are whole.",
            ) from error
    if options["json"]:
        command.stdout.write(json.dumps(told))
    else:
        for line in _lines(told):
            command.stdout.write(line)
    if told["unfit"]:
        raise SystemExit(1)


def make_backup(folder: Path, *, keep: int | None, progress: Progress) -> dict[str, Any]:
    """Publish a backup in a folder of backups, and return its manifest with its `path`.

    Raises:
        StepError: backup_running, program_missing, database_copy_failed.
        OSError: a disk is full or cannot be written; what was there before is whole.
    """
    check_programs("pg_dump")
    folder.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
    with _alone(folder):
        part, earlier = folder / PART, backups_in(folder)
        before = earlier[-1] if earlier else None
        (part / OBJECTS).mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
        making = Making(part, before, read_objects(before) if before else {})
        # Nearly all of it before the rows are copied, so that little goes between the two.
        for one in named_objects():
            with suppress(FileNotFoundError):
                making.keep(one.key)
            progress.step()
        name = DATABASES[connection.vendor]
        for _ in range(MOST_COPIES):
            made_at = leases.database_now()
            unfit, keys = making.keep_rows(name, progress)
            if not any(not one.is_named_still() for one in unfit):
                break
        making.drop_others(keys)
        manifest = _manifest(making, name, made_at, unfit)
        published = _publish(making, folder, manifest)
        for old in backups_in(folder)[:-keep] if keep else ():
            shutil.rmtree(old)
    SweepTurn.objects.update_or_create(name=SweepTurn.BACKUP, defaults={"next_at": made_at})
    progress.end()
    return manifest | {"path": str(published), "copied": making.copied, "linked": making.linked}


def _manifest(
    making: Making, name: str, made_at: dt.datetime, unfit: list[NamedObject]
) -> dict[str, Any]:
    """Write what belongs into the backup beside its objects, and return what it says of itself."""
    part, own_key = making.part, settings.DATA_DIR / SECRET_KEY
    has_key = own_key.is_file() and own_key.read_text("ascii").strip() == settings.SECRET_KEY
    if has_key:
        shutil.copyfile(own_key, part / SECRET_KEY)
        (part / SECRET_KEY).chmod(FILE_MODE)
        sync_file(part / SECRET_KEY)
    else:
        (part / SECRET_KEY).unlink(missing_ok=True)
    write_synced(part / OBJECTS_LIST, "".join(object_lines(making.objects)))
    found = [
        {
            "kind": one.kind,
            "id": str(one.pk),
            "key": one.key,
            "state": "damaged" if one.key in making.objects else "missing",
        }
        for one in unfit
    ]
    return {
        "format": FORMAT,
        "version": settings.SPECTACULAR_SETTINGS["VERSION"],
        "made_at": made_at.isoformat(),
        "database": connection.vendor,
        "database_sha256": digest_of_file(part / name),
        "migrations": applied_migrations(),
        "objects": len(making.objects),
        "bytes": sum(kept.size for kept in making.objects.values()),
        "objects_sha256": digest_of_file(part / OBJECTS_LIST),
        "secret_key": has_key,
        "unfit": found,
    }


def _publish(making: Making, folder: Path, manifest: dict[str, Any]) -> Path:
    """Give the backup its name, by one rename, once all of it is on the disk."""
    write_synced(making.part / MANIFEST, json.dumps(manifest, indent=1))
    for path in sorted(making.folders | {making.part}, reverse=True):
        if path.is_dir():
            sync_file(path)
    moment = dt.datetime.fromisoformat(manifest["made_at"]).astimezone(dt.UTC)
    target = folder / f"{moment:%Y-%m-%dT%H-%M-%S}-{moment.microsecond:06d}Z"
    if target.exists():
        raise damaged(f"{target} is there already")
    making.part.rename(target)
    sync_file(folder)
    return target


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one backup at a time be made in a folder.

    Raises:
        StepError: backup_running.
    """
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StepError(
                "backup_running", f"Another backup to {folder} is being made; wait for its end."
            ) from error
        yield


def _lines(told: dict[str, Any]) -> Iterator[str]:
    size = told["bytes"] / 1e6
    yield f"Backup   {told['path']}"
    yield (
        f"Objects  {counted(told['objects'], 'object')}, {size:.1f} MB: {told['copied']} copied, "
        f"{told['linked']} as in the backup before"
    )
    if told["secret_key"]:
        yield "Key      the secret key is in it: who reads the backup can read webhook secrets"
    else:
        yield (
            "Key      TTS_SECRET_KEY is not in it: keep it elsewhere, or webhook secrets cannot "
            "be read after a restore"
        )
    for one in told["unfit"]:
        yield f"{one['state']}  {one['kind']} {one['id']}: {one['key']}"
    if told["unfit"]:
        yield "The rows name these; ./tts check-data says what to do. All else is in the backup."
