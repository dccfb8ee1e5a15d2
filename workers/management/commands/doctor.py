"""Check Python, PyTorch, device, database, broker, storage, checkpoint, memory, workers, port."""

from __future__ import annotations

from ttsweb.commands.base import JSON, BaseCommand, switch


class Command(BaseCommand):
    help = (
        "Check everything that a working installation needs, and show the remedy for what is "
        "missing."
    )
    work = "workers.local.doctor:run"
    arguments = (
        switch(
            "--production",
            "look at what an installation needs that others reach: HTTPS, secrets, passwords of "
            "services, backups, modes of files; nothing is loaded that a worker needs",
        ),
        JSON,
    )
    requires_system_checks = ()  # what they would stop at is reported here, with the rest
