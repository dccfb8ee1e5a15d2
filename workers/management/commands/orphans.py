"""Show the objects in the storage that no row names, or remove them."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from ttsweb.commands.base import BaseCommand
from ttsweb.counted import counted


class Command(BaseCommand):
    """Walk the whole storage at once; workers do so by themselves, a part at a time."""

    help = (
        "List the objects in the storage that no row of the database names and that are "
        "older than TTS_ORPHAN_HOURS. Workers remove such objects by themselves unless "
        "TTS_ORPHAN_HOURS is 0."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take what to do, and the form of the answer."""
        parser.add_argument("--delete", action="store_true", help="remove these objects")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Tell each object with its size, then the sums; with `--delete` remove each shard's."""
        from voices.objects import delete_objects
        from workers.upkeep.orphans import all_shards, find_orphans

        objects: list[dict[str, Any]] = []
        for shard in all_shards():
            found = [{"key": key, "bytes": _size(key)} for key in find_orphans(shard)]
            if options["delete"]:
                delete_objects([str(one["key"]) for one in found])
            objects += found
            if not options["json"]:
                for one in found:
                    self.stdout.write(f"{one['key']}  {one['bytes']}")
        total = sum(one["bytes"] for one in objects)
        if options["json"]:
            told = {"objects": objects, "bytes": total, "deleted": options["delete"]}
            self.stdout.write(json.dumps(told))
            return
        done = "removed" if options["delete"] else "found; --delete removes them"
        self.stdout.write(f"{counted(len(objects), 'object')}, {total} bytes {done}")


def _size(key: str) -> int:
    """Return an object's size; 0 of one that went in this moment."""
    from django.core.files.storage import default_storage

    try:
        return default_storage.size(key)
    except FileNotFoundError:
        return 0
