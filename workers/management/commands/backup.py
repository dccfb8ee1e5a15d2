"""Make a backup while the service runs."""

from __future__ import annotations

from ttsweb.commands.base import JSON, BaseCommand, argument


class Command(BaseCommand):
    help = (
        "Back up the database and every object that its rows name into a new folder below DIR. "
        "The service may run meanwhile. What an earlier backup in DIR holds takes no more space."
    )
    work = "workers.backups.making:run"
    arguments = (
        argument("folder", metavar="DIR", help="folder of backups; on another disk, best"),
        argument("--keep", type=int, metavar="N", help="then delete all but the newest N backups"),
        JSON,
    )
