"""`./tts worker`: encode voices, render segments and make files until told to stop."""

from __future__ import annotations

from argparse import ArgumentParser

from ttsweb.commands.base import BaseCommand


class Command(BaseCommand):
    help = (
        "Run a worker. The role gpu encodes clips and renders segments, the role cpu makes "
        "files, and the role all does both."
    )

    work = "workers.process.run_worker:run"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--role", choices=("gpu", "cpu", "all"), default="all", help="default: all"
        )
        parser.add_argument(
            "--concurrency",
            type=int,
            help="tasks that run at once; default: as many as processors, from 2 to 4",
        )
        parser.add_argument(
            "--name",
            default="",
            help=(
                "unique name that stays the same after a restart; default: TTS_WORKER_NAME or "
                "the host's name, with the role"
            ),
        )
        parser.add_argument(
            "--queues",
            default="",
            help="queues, separated by commas; default: the queues of the role",
        )
