"""Serve the site and the API, and run the worker beside it in the embedded default."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError
from typing import TYPE_CHECKING, Any

from ttsweb.commands.base import BaseCommand
from ttsweb.commands.errors import errors_told

if TYPE_CHECKING:
    from workers.local.site import Site


class Command(BaseCommand):
    """Migrate, then run web and worker as two processes until Ctrl-C or SIGTERM."""

    help = (
        "Serve the site and the API, with a worker. If TTS_DATABASE_URL or TTS_REDIS_URL is "
        "set, no worker is started with the site: start workers with ./tts worker."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the address and whether a worker runs here."""
        parser.add_argument("--host", help="address to listen on")
        parser.add_argument("--port", type=port, help="port, or auto for the next free one")
        here = parser.add_mutually_exclusive_group()
        here.add_argument("--worker", action="store_true", default=None, help="start a worker too")
        here.add_argument(
            "--no-worker", action="store_false", dest="worker", help="start no worker"
        )
        parser.add_argument(
            "--json", action="store_true", help="print one JSON object when the site is ready"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Return when a signal ended the site."""
        from django.conf import settings

        from ttsweb.http import listen
        from ttsweb.migration import migrate_once
        from workers.local.embedded import open_standard_streams, signals_interrupt
        from workers.local.local_worker import LocalWorker
        from workers.local.site import Site

        open_standard_streams()
        has_worker = settings.IS_EMBEDDED if options["worker"] is None else options["worker"]
        with errors_told(self.stdout, as_json=options["json"]):
            host, wanted = options["host"] or settings.HOST, options["port"]
            listen.check_address(host, settings.ALLOWED_HOSTS)
            listening = listen.open_socket(host, wanted or settings.PORT, or_next=wanted == AUTO)
            try:
                with signals_interrupt():
                    migrate_once(settings.DATA_DIR)
                    worker = LocalWorker() if has_worker else None
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
        self.stdout.write("Ready       the worker has loaded the model")
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
        raise ArgumentTypeError(f"{text!r} is not a port from 1 to 65535, and not auto")
    return int(text)
