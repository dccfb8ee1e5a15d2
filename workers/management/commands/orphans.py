"""Show the objects in the storage that no row names, or remove them."""

from __future__ import annotations

from ttsweb.commands.base import JSON, BaseCommand, switch


class Command(BaseCommand):
    help = (
        "List the objects in the storage that no row of the database names and that are "
        "older than TTS_ORPHAN_HOURS. Workers remove such objects by themselves unless "
        "TTS_ORPHAN_HOURS is 0."
    )
    arguments = (switch("--delete", "remove these objects"), JSON)
    work = "workers.objects:list_orphans"
