"""Bring back what a backup holds."""

from __future__ import annotations

from ttsweb.commands.base import JSON, BaseCommand, argument, switch


class Command(BaseCommand):
    help = (
        "Restore the newest backup below DIR, or the backup DIR itself, into an empty "
        "installation. Every digest is checked before anything is written."
    )
    work = "workers.backups.restoring:run"
    arguments = (
        argument("folder", metavar="DIR", help="what ./tts backup was given, or a folder in it"),
        switch(
            "--missing",
            "only put back objects that this installation's rows name and its storage lacks; "
            "the service may run meanwhile",
        ),
        JSON,
    )
    requires_system_checks = ()  # they may look at a database that is not there yet
