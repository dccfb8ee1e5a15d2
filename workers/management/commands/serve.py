"""Serve the site and the API, and run the worker beside it in the embedded default."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from ttsweb import listen
from ttsweb.command_errors import errors_told
from ttsweb.migration import migrate_once
from workers.embedded import open_standard_streams, signals_interrupt
from workers.local_worker import LocalWorker
from workers.site import Site


class Command(BaseCommand):
    """Migrate, then run web and worker as two processes until Ctrl-C or SIGTERM."""

    help = (
        "Serve the site and the API. A worker runs beside it, unless TTS_DATABASE_URL or "
        "TTS_REDIS_URL is set: then workers are started by themselves (./tts worker)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the address and whether a worker runs here."""
        parser.add_argument("--host", default=settings.HOST, help="address to listen on")
        parser.add_argument(
            "--port", type=port, default=settings.PORT, help="port, or auto: the next free one"
        )
        here = parser.add_mutually_exclusive_group()
        here.add_argument(
            "--worker", action="store_true", default=settings.IS_EMBEDDED, help="with a worker"
        )
        here.add_argument("--no-worker", action="store_false", dest="worker", help="without one")
        parser.add_argument("--json", action="store_true", help="print one JSON object when ready")

    def handle(self, *args: Any, **options: Any) -> None:
        """Return when a signal ended the site."""
        open_standard_streams()
        with errors_told(self.stdout, as_json=options["json"]):
            listen.check_address(options["host"], settings.ALLOWED_HOSTS)
            wanted = options["port"]
            listening = listen.open_socket(
                options["host"], wanted or settings.PORT, or_next=wanted == AUTO
            )
            try:
                with signals_interrupt():
                    migrate_once(settings.DATA_DIR)
                    worker = LocalWorker() if options["worker"] else None
                    self._serve(Site(listening, worker), as_json=options["json"])
            except KeyboardInterrupt:
                self.stderr.write("Stopped.")

    def _serve(self, site: Site, *, as_json: bool) -> None:
        try:
            site.wait_answering()
            if as_json:
                self.stdout.write(json.dumps({"url": site.url, "worker": site.has_worker}))
            else:
                self.stdout.write(f"Serving     {site.url}/  admin: {site.url}/admin/")
                self.stdout.write("Stop with Ctrl-C.")
            self.stdout.flush()
            site.run(on_worker_ready=None if as_json else self._say_ready)
        finally:
            site.stop()

    def _say_ready(self) -> None:
        self.stdout.write("Ready       the worker is warm")
        self.stdout.flush()


AUTO = 0


def port(text: str) -> int:
    """Return a port number, AUTO for `auto`.

    Raises:
        ArgumentTypeError: neither of them.
    """
    if text == "auto":
        return AUTO
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        raise ArgumentTypeError(f"{text!r} is neither a port from 1 to 65535 nor auto")
    return int(text)
