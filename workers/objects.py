"""Say which objects rows name and whether each is still whole; remove those that no row names.

The latter are what a kill left between a commit and the removal of bytes. The storage is walked in
shards, each of which is looked at once a day by one of the workers: which of them was seen is told
by rows, so that a walk which is broken off goes on with the next shard.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import logging
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import soundfile
from django.apps import apps
from django.conf import settings
from django.core.files.storage import default_storage
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import CharField, Model

from synth.models import SweepTurn, Take
from ttsweb import leases
from ttsweb.commands.base import BaseCommand, Output, StepError, reporting_errors, signals_interrupt
from ttsweb.refusals import counted
from ttsweb.storage import delete_objects, fetch_object
from workers.kinds import take_turn
from workers.rendering.codes import BYTES_PER_SAMPLE

logger = logging.getLogger(__name__)

ROUND_SECONDS = 5.0  # the round of the sweep that this is a part of does other work as well
SHARD_PAUSE = dt.timedelta(days=1)
DEFAULT_HOURS = 24  # for the command, where the setting switches the walk off
KEY_CHARS = 300  # every column that names an object is so wide, and is called `key` or `*_key`

_HEX = "0123456789abcdef"
# What is not in these folders, or has no name that we give, is not ours to remove.
_SHARDED = ("books", "clips", "codes", "exports", "transcripts")
_FOLDER = re.compile(r"[0-9a-f]{64}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME = re.compile(r"(?:[0-9a-f]{1,16}-)?[0-9a-f]{32}(?:\.[a-z0-9_]{1,20})?")


@dataclass(frozen=True, slots=True)
class Shard:
    """Name a part of the storage: the folders in `folder` whose names begin with `start`."""

    folder: str
    start: str

    @property
    def turn(self) -> str:
        return f"orphans {self.folder}/{self.start}"


def all_shards() -> list[Shard]:
    """Return the parts of the storage, in the order of the walk."""
    takes = [Shard(f"takes/{high}{low}", "") for high in _HEX for low in _HEX]
    return [*(Shard(folder, start) for folder in _SHARDED for start in _HEX), *takes]


def delete_orphans(*, within_seconds: float = ROUND_SECONDS, now: dt.datetime | None = None) -> int:
    """Remove the orphans of the shards whose turn it is, until the time is over; return how many.

    Args:
        now: the time by which objects are old, the database's if None.
    """
    if settings.ORPHAN_HOURS == 0:
        return 0
    since, before = _orphans_time(now)
    if since >= before:  # a database that was made lately has none, nor a turn for each shard
        return 0
    until, count = time.monotonic() + within_seconds, 0
    for shard in _due():
        if take_turn(shard.turn, seconds=SHARD_PAUSE.total_seconds()) is None:
            continue
        try:
            found = list(find_orphans(shard, now=now))
        except OSError as error:  # one folder that cannot be read keeps nothing else waiting
            logger.warning("cannot look at the storage: shard=%s error=%s", shard.turn, error)
            continue
        delete_objects(found)
        count += len(found)
        if time.monotonic() > until:
            break
    if count:
        logger.info("removed objects that no row names: objects=%d", count)
    return count


def find_orphans(shard: Shard, *, now: dt.datetime | None = None) -> Iterator[str]:
    """Yield the keys of a shard's objects that no row names and that are old enough to say so.

    An object is published before the row that names it, so young ones are left. So are those from
    before this database was made: they may be the objects of another one, which was lost.
    """
    since, before = _orphans_time(now)
    # First what is there, then the rows: what gets its row between the two is young.
    keys = list(_keys(shard))
    named: set[str] = set()
    for model, column in key_columns() if keys else ():
        prefix = {f"{column}__startswith": f"{shard.folder}/{shard.start}"}
        rows = model._base_manager.filter(**prefix).order_by()
        named.update(rows.values_list(column, flat=True).iterator())
    for key in keys:
        with suppress(FileNotFoundError):  # one that is gone
            if key not in named and since <= default_storage.get_modified_time(key) < before:
                yield key


def _orphans_time(now: dt.datetime | None) -> tuple[dt.datetime, dt.datetime]:
    """Return between which moments an object was written that may be an orphan."""
    age = dt.timedelta(hours=settings.ORPHAN_HOURS or DEFAULT_HOURS)
    return database_made_at(), (now or leases.database_now()) - age


def key_columns() -> list[tuple[type[Model], str]]:
    """Return every column that names an object, of all models; a new one is among them at once."""
    return [
        (model, field.attname)
        for model in apps.get_models()
        for field in model._meta.concrete_fields
        if isinstance(field, CharField)
        and field.max_length == KEY_CHARS
        and (field.name == "key" or field.name.endswith("_key"))
    ]


def database_made_at() -> dt.datetime:
    """Return when the database was made: when its first migration was applied."""
    applied = MigrationRecorder.Migration.objects.order_by("applied")
    first = applied.values_list("applied", flat=True).first()
    return first or leases.database_now()


def _due() -> list[Shard]:
    """Return the shards whose day is over, those that wait longest first."""
    turns = dict(
        SweepTurn.objects.filter(name__startswith="orphans ").values_list("name", "next_at")
    )
    now = leases.database_now()
    due = [shard for shard in all_shards() if turns.get(shard.turn, now) <= now]
    return sorted(due, key=lambda shard: turns.get(shard.turn, now))


def _keys(shard: Shard) -> Iterator[str]:
    """Yield the keys of a shard's objects that have names as we give them."""
    for key in default_storage.list_keys(f"{shard.folder}/{shard.start}"):  # type: ignore[attr-defined]  # of both kinds
        folder, _, name = key.removeprefix(f"{shard.folder}/").partition("/")
        if _FOLDER.fullmatch(folder) and _NAME.fullmatch(name):
            yield key


def list_orphans(command: BaseCommand, options: dict[str, Any]) -> None:
    """Tell each object with its size, then the sums; with `--delete` remove each shard's."""
    objects: list[dict[str, Any]] = []
    for shard in all_shards():
        found: list[dict[str, Any]] = []
        for key in find_orphans(shard):
            found.append({"key": key, "bytes": 0})
            with suppress(FileNotFoundError):  # it went in this moment
                found[-1]["bytes"] = default_storage.size(key)
        if options["delete"]:
            delete_objects([str(one["key"]) for one in found])
        objects += found
        if not options["json"]:
            for one in found:
                command.stdout.write(f"{one['key']}  {one['bytes']}")
    total = sum(one["bytes"] for one in objects)
    if options["json"]:
        result = {"objects": objects, "bytes": total, "deleted": options["delete"]}
        command.stdout.write(json.dumps(result))
        return
    done = "removed" if options["delete"] else "found; --delete removes them"
    command.stdout.write(f"{counted(len(objects), 'object')}, {total} bytes {done}")


BLOCK_BYTES = 1 << 20
# The columns that hold the digest of the object which another one names.
_DIGESTS = {
    ("Export", "key"): "sha256",
    ("BookFile", "key"): "sha256",
    ("BookSource", "object_key"): "sha256",
    ("StoredClip", "original_key"): "fingerprint",
}
_FROM_BACKUP = "Bring it back from a backup: ./tts restore DIR --missing."
_REMEDIES = {
    ("Take", "audio_key"): "Bring it back from a backup (./tts restore DIR --missing), or render "
    "it again: POST /api/v1/jobs/{job}/segments/{segment}/render.",
    ("Take", "codes_key"): "Its audio does not need them; ./tts restore DIR --missing brings them "
    "back from a backup.",
    ("Export", "key"): "Bring it back from a backup (./tts restore DIR --missing), or send the "
    "job again: its takes are used again.",
    ("BookFile", "key"): "Bring it back from a backup (./tts restore DIR --missing), or delete "
    "the file and ask for it again: its takes are used again.",
    ("BookSource", "object_key"): "Bring it back from a backup (./tts restore DIR --missing), or "
    "upload the book again.",
    ("StoredClip", "original_key"): "Bring it back from a backup (./tts restore DIR --missing), "
    "or upload the clip again as a new version of its voice.",
    ("ClipCodes", "key"): "Nothing: the next worker that needs them encodes the clip again.",
    ("LiveChunk", "key"): "Nothing: it is a piece of live audio, which goes by itself.",
    ("Transcript", "original_key"): "Upload the clip again.",
}


@dataclass(frozen=True, slots=True)
class NamedObject:
    """A row and the object that one of its columns names; `sha256` is "" where none is known."""

    model: type[Model]
    column: str
    pk: Any
    key: str
    sha256: str = ""

    @property
    def kind(self) -> str:
        """Return what documents call it, such as `take audio`."""
        what = self.column.removesuffix("_key").removesuffix("key").replace("_", " ")
        return f"{self.model._meta.verbose_name} {what}".strip()

    def is_named_still(self) -> bool:
        """Say whether the row is there and names the same object; it may have gone meanwhile."""
        return self.model._base_manager.filter(pk=self.pk, **{self.column: self.key}).exists()

    def remedy(self) -> str:
        name = (self.model.__name__, self.column)
        about = {"job": "JOB_ID", "segment": "SEGMENT_ID"}
        if self.model.__name__ == "Take":
            segments: Any = self.model._base_manager.get(pk=self.pk).segments  # type: ignore[attr-defined]
            if (row := segments.values_list("job", "pk").first()) is not None:
                about = {"job": str(row[0]), "segment": str(row[1])}
        return _REMEDIES.get(name, _FROM_BACKUP).format(**about)


def named_objects(using: str = "default") -> Iterator[NamedObject]:
    """Yield every object that a row of a database names; one that several name comes as often."""
    for model, column in key_columns():
        digest = _DIGESTS.get((model.__name__, column))
        rows = model._base_manager.using(using).exclude(**{column: ""}).order_by("pk")
        columns = ("pk", column, *([digest] if digest else []))
        for row in rows.values_list(*columns).iterator(chunk_size=2000):
            yield NamedObject(model, column, *row)


def count_named() -> int:
    return sum(
        model._base_manager.exclude(**{column: ""}).count() for model, column in key_columns()
    )


def digest_of(key: str, copy_to: IO[bytes] | None = None) -> tuple[str, int]:
    """Return the sha256 and the size of an object, and copy it on the way.

    Raises:
        FileNotFoundError: it is not stored.
        OSError: the storage, or what it is copied to, does not work.
    """
    digest, size = hashlib.sha256(), 0
    with default_storage.open(key) as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
            size += len(block)
            if copy_to is not None:
                copy_to.write(block)
    return digest.hexdigest(), size


_BLOCK_SAMPLES = 1 << 16
_STREAMINFO_MD5 = slice(26, 42)  # of a FLAC file: "fLaC", a block's header, then STREAMINFO


def check(command: BaseCommand, options: dict[str, Any]) -> None:
    """Tell each object that is missing or damaged, and what to do; exit code 1 if there is any."""
    found: list[dict[str, str]] = []
    checked = 0
    progress = Progress(command.stderr, is_shown=not options["json"])
    with reporting_errors(command.stdout, as_json=options["json"]), signals_interrupt():
        progress.total = count_named()
        try:
            for one in named_objects():
                checked += 1
                progress.step()
                state = state_of(one)
                if state == "whole" or not one.is_named_still():  # deleted in this moment
                    continue
                about = {"state": state, "kind": one.kind, "id": str(one.pk), "key": one.key}
                found.append(about | {"remedy": one.remedy()})
                if not options["json"]:
                    progress.end()
                    command.stdout.write(f"{state}  {one.kind} {one.pk}: {one.key}")
                    command.stdout.write(f"         {found[-1]['remedy']}")
        except OSError as error:
            raise StepError(
                "storage_unavailable",
                f"{error.strerror or error}. {counted(checked, 'object')} looked at; run it again "
                "once the storage answers.",
            ) from error
        progress.end()
    if options["json"]:
        command.stdout.write(json.dumps({"checked": checked, "unfit": found}))
    else:
        states = [one["state"] for one in found]
        command.stdout.write(
            f"{counted(checked, 'object')} checked: {states.count('missing')} missing, "
            f"{states.count('damaged')} damaged"
        )
    if found:
        raise SystemExit(1)


def state_of(one: NamedObject) -> str:
    """Return whether an object is `whole`, `missing` or `damaged`.

    Raises:
        OSError: the storage does not work, which says nothing of the object.
    """
    try:
        if one.sha256:
            is_whole = digest_of(one.key)[0] == one.sha256
        elif one.model is Take:
            is_whole = _is_whole_take(one)
        else:  # that it can be read to its end is all that can be known
            digest_of(one.key)
            is_whole = True
    except FileNotFoundError:
        return "missing"
    return "whole" if is_whole else "damaged"


def _is_whole_take(one: NamedObject) -> bool:
    """Compare a take's audio with the digest that is in it, and the size of both objects."""
    take = Take.objects.filter(pk=one.pk).first()
    if take is None:
        return True
    if one.column == "codes_key":
        rest = _size_of(take.audio_key)
        size = default_storage.size(one.key)
        return rest is None or not take.size_bytes or size + rest == take.size_bytes
    return is_whole_flac(one.key, num_samples=round(take.audio_seconds * take.sample_rate))


def _size_of(key: str) -> int | None:
    try:
        return default_storage.size(key)
    except FileNotFoundError:
        return None


def is_whole_flac(key: str, *, num_samples: int) -> bool:
    """Say whether the samples of a FLAC are those whose MD5 its encoder has written into it.

    Raises:
        FileNotFoundError: it is not stored.
    """
    file = fetch_object(key)
    wanted = file.getvalue()[_STREAMINFO_MD5]
    digest, count = hashlib.md5(usedforsecurity=False), 0
    try:
        with soundfile.SoundFile(file) as audio:
            for block in _blocks(audio):
                count += len(block)
                digest.update(_as_encoded(block))
    except soundfile.LibsndfileError:
        return False
    return count == num_samples and (not any(wanted) or digest.digest() == wanted)


def _blocks(audio: soundfile.SoundFile) -> Iterator[np.ndarray[Any, np.dtype[np.int32]]]:
    while len(block := audio.read(_BLOCK_SAMPLES, dtype="int32")):
        yield block


def _as_encoded(block: np.ndarray[Any, np.dtype[np.int32]]) -> bytes:
    """Return samples as FLAC's digest counts them: little-endian, in as many bytes as they need."""
    whole = (block >> 8).astype("<i4").view(np.uint8).reshape(-1, 4)
    return whole[:, :BYTES_PER_SAMPLE].tobytes()


SECONDS = 2.0


class Progress:
    """Count steps and write a line every two seconds; on a terminal in one place."""

    def __init__(self, output: Output, *, is_shown: bool = True) -> None:
        self.total = 0  # of steps; 0 where nobody knows
        self._output, self._is_shown = output, is_shown
        self._is_terminal = bool(output.isatty())
        self._next, self._steps, self._is_open = time.monotonic() + SECONDS, 0, False

    def step(self) -> None:
        self._steps += 1
        now = time.monotonic()
        if not self._is_shown or now < self._next:
            return
        self._next = now + SECONDS
        of_total = f" of {self.total}" if self.total else ""
        line = f"{self._steps}{of_total} objects"
        self._output.write(
            f"\r{line}" if self._is_terminal else line, ending="" if self._is_terminal else "\n"
        )
        self._is_open = self._is_terminal

    def end(self) -> None:
        """Leave the line of a terminal."""
        if self._is_open:
            self._output.write("")
            self._is_open = False
