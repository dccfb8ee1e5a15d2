"""`./tts worker`: encode voices, render segments and make files until told to stop."""

from __future__ import annotations

from typing import Any

from ttsweb.commands.base import BaseCommand, argument


class Command(BaseCommand):
    help = (
        "Run a worker. The role gpu encodes clips and renders segments, the role cpu makes "
        "files, and the role all does both."
    )
    work = "workers.process.run_worker:run"
    arguments = (
        argument("--role", choices=("gpu", "cpu", "all"), help="default: all, with --server gpu"),
        argument(
            "--server",
            default="",
            help="work for this site over HTTPS, such as https://tts.example.org, without its "
            "database and storage; needs a key with the scope worker",
        ),
        argument("--key", default="", help="the key for --server; default: TTS_API_KEY"),
        argument(
            "--concurrency",
            type=int,
            help="tasks that run at once; default: as many as processors, from 2 to 4",
        ),
        argument(
            "--name",
            default="",
            help="unique name that stays the same after a restart; default: TTS_WORKER_NAME or "
            "the host's name, with the role",
        ),
        argument(
            "--devices",
            help="run a worker for each of these devices, such as cuda:0,cuda:2, or for all; each "
            "is started again when it ends",
        ),
        argument(
            "--queues",
            default="",
            help="queues, separated by commas; default: the queues of the role",
        ),
    )

    def handle(self, *args: Any, **options: Any) -> None:
        """Work in this process, or supervise processes that do."""
        if options["devices"] is not None:
            self.work = "workers.local.children:supervise"
        super().handle(*args, **options)
