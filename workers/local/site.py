"""Run the site for a command: the web server as a child process, beside a worker."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import IO, Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import DatabaseError, InterfaceError
from django.db import connection as database

from ttsweb.commands.base import BaseCommand, StepError, reporting_errors
from ttsweb.http import listen
from ttsweb.http.listen import url_of
from ttsweb.migration import migrate_once
from workers.local.children import Child, open_standard_streams, signals_interrupt, stop_all
from workers.local.local_worker import LocalWorker
from workers.management.commands.serve import AUTO

LOOK_SECONDS = 0.2
WEB_GRACE_SECONDS = 5  # for requests that are open when the site stops; long polls are cut


class Site:
    """One web server on a listening socket, and the worker that goes with it, if any."""

    def __init__(
        self, listening: socket.socket, worker: LocalWorker | None, *, log: IO[bytes] | None = None
    ) -> None:
        """Start the web server; the worker's life is joined to the site's."""
        self.url = url_of(listening, settings.ALLOWED_HOSTS)
        self._listening, self._worker = listening, worker
        grace = int(min(WEB_GRACE_SECONDS, settings.DRAIN_SECONDS))
        descriptor = listening.fileno()
        self._web = Child(
            "web",
            "ttsweb.http.web_process",
            [str(descriptor), str(grace)],
            descriptors=[descriptor],
            log=log,
        )
        self._web.start()

    def wait_answering(self) -> None:
        """Return once the web server answers a request.

        Raises:
            StepError: web_failed, when it ended before it answered.
        """
        while not _answers(self._listening, urlsplit(self.url).hostname or "localhost"):
            if self._web.exit_code is not None:
                raise StepError(
                    "web_failed",
                    "The web server ended before it answered (exit code "
                    f"{self._web.exit_code}); its last log lines show the reason.",
                )
            time.sleep(LOOK_SECONDS)

    def run(self, *, on_worker_ready: Callable[[], None] | None = None) -> None:
        while True:
            self._web.restart_if_dead()
            if self._worker is not None:
                self._worker.keep()
                try:
                    if on_worker_ready is not None and self._worker.is_ready():
                        on_worker_ready()
                        on_worker_ready = None
                except (DatabaseError, InterfaceError):
                    database.close()  # away for now; the next look opens another connection
            time.sleep(LOOK_SECONDS)

    def stop(self) -> None:
        children = [self._web]
        if self._worker is not None and self._worker.child is not None:
            children.append(self._worker.child)
        stop_all(children)
        self._listening.close()
        if self._worker is not None:
            self._worker.close()


def _answers(listening: socket.socket, host_name: str) -> bool:
    """Ask for the health page through the socket's own address, by a name the site accepts."""
    address, port = listening.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    connection = http.client.HTTPConnection(reachable, port, timeout=2)
    try:
        connection.request("GET", "/healthz", headers={"Host": f"{host_name}:{port}"})
        connection.getresponse()  # whatever it says of the system's health, it answers
        return True
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def serve(command: BaseCommand, options: dict[str, Any]) -> None:
    """Return when a signal ended the site."""
    open_standard_streams()

    def say(line: str) -> None:
        command.stdout.write(line)
        command.stdout.flush()

    has_worker: bool = settings.IS_EMBEDDED if options["worker"] is None else options["worker"]
    with reporting_errors(command.stdout, as_json=options["json"]):
        host, wanted = options["host"] or settings.HOST, options["port"]
        listen.check_address(host, settings.ALLOWED_HOSTS)
        listening = listen.open_socket(host, wanted or settings.PORT, or_next=wanted == AUTO)
        try:
            with signals_interrupt():
                migrate_once(settings.DATA_DIR)
                site = Site(listening, LocalWorker() if has_worker else None)
                try:
                    site.wait_answering()
                    if options["json"]:
                        answer = {"url": site.url, "worker": has_worker}
                        say(json.dumps(answer))
                    else:
                        say(f"Serving     {site.url}/  admin: {site.url}/admin/")
                        say("Stop with Ctrl-C.")
                    ready = partial(say, "Ready       the worker has loaded the model")
                    site.run(on_worker_ready=None if options["json"] else ready)
                finally:
                    site.stop()
        except KeyboardInterrupt:
            command.stderr.write("Stopped.")
