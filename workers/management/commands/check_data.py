"""Look whether all that rows name is stored and undamaged."""

from __future__ import annotations

from ttsweb.commands.base import JSON, BaseCommand


class Command(BaseCommand):
    help = (
        "Read every object that a row names and compare it with its digest; say what is missing "
        "or damaged, and what to do. Exit code 1 if anything is."
    )
    work = "workers.objects:check"
    arguments = (JSON,)
