"""Remove objects that no row names: what a kill left between a commit and the removal of bytes.

The storage is walked in shards, each of which is looked at once a day by one of the workers: which
of them was seen is told by rows, so that a walk which is broken off goes on with the next shard.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.files.storage import default_storage
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import CharField, Model

from synth.models import SweepTurn
from ttsweb import leases
from ttsweb.commands.base import BaseCommand
from ttsweb.counted import counted
from voices.objects import delete_objects
from workers.turns import take_turn

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
    until = (now or leases.database_now()) - dt.timedelta(
        hours=settings.ORPHAN_HOURS or DEFAULT_HOURS
    )
    since = database_made_at()
    # First what is there, then the rows: what gets its row between the two is young.
    keys = list(_keys(shard))
    named: set[str] = set()
    for model, column in key_columns() if keys else ():
        prefix = {f"{column}__startswith": f"{shard.folder}/{shard.start}"}
        rows = model._base_manager.filter(**prefix).order_by()
        named.update(rows.values_list(column, flat=True).iterator())
    for key in keys:
        with suppress(FileNotFoundError):  # one that is gone
            if key not in named and since <= default_storage.get_modified_time(key) < until:
                yield key


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


def run(command: BaseCommand, options: dict[str, Any]) -> None:
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
