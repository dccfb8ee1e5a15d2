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
from ttsweb.install.extras import require_extra
from ttsweb.migration import migrate_once
from workers.local.children import Child, open_standard_streams, signals_interrupt, stop_all
from workers.local.local_worker import LocalWorker
from workers.local.wyoming import WyomingServer
from workers.management.commands.serve import AUTO

LOOK_SECONDS = 0.2
WEB_GRACE_SECONDS = 5  # for requests that are open when the site stops; long polls are cut


class Site:
    """One web server on a listening socket, and the worker that goes with it, if any."""

    def __init__(
        self,
        listening: socket.socket,
        worker: LocalWorker | None,
        *,
        wyoming: WyomingServer | None = None,
        log: IO[bytes] | None = None,
    ) -> None:
        """Start the web server; the lives of the others are joined to the site's.

        Raises:
            StepError: as `WyomingServer.child`.
        """
        self.url = url_of(listening, settings.ALLOWED_HOSTS)
        self._listening, self._worker = listening, worker
        self._beside = [] if wyoming is None else [wyoming.child(listening, self.url)]
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
        """Return once the web server answers a request; start what stands beside it.

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
        for child in self._beside:
            child.start()

    def run(self, *, on_worker_ready: Callable[[], None] | None = None) -> None:
        while True:
            for child in (self._web, *self._beside):
                child.restart_if_dead()
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
        stop_all(self._beside)  # first: they still tell the site what is not wanted any more
        children = [self._web]
        if self._worker is not None and self._worker.child is not None:
            children.append(self._worker.child)
        stop_all(children)
        self._listening.close()
        if self._worker is not None:
            self._worker.close()


def _answers(listening: socket.socket, host_name: str) -> bool:
    """Ask for the health page through the socket's own address, by a name the site accepts."""
    near = urlsplit(listen.near_url_of(listening))
    port = near.port
    connection = http.client.HTTPConnection(near.hostname or "", port, timeout=2)
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
        if settings.OIDC is not None:
            require_extra("oidc", "TTS_OIDC_URL")
        host, wanted = options["host"] or settings.HOST, options["port"]
        listen.check_address(host, settings.ALLOWED_HOSTS)
        listening = listen.open_socket(host, wanted or settings.PORT, or_next=wanted == AUTO)
        wyoming = wyoming_server(host, options)
        try:
            with signals_interrupt():
                migrate_once(settings.DATA_DIR)
                worker = LocalWorker() if has_worker else None
                site = Site(listening, worker, wyoming=wyoming)
                try:
                    site.wait_answering()
                    if options["json"]:
                        answer = {"url": site.url, "worker": has_worker}
                        say(json.dumps(answer | ({"wyoming": wyoming.url} if wyoming else {})))
                    else:
                        say(f"Serving     {site.url}/  admin: {site.url}/admin/")
                        if wyoming is not None:
                            say(f"Wyoming     {wyoming.url}")
                        say("Stop with Ctrl-C.")
                    ready = partial(say, "Ready       the worker has loaded the model")
                    site.run(on_worker_ready=None if options["json"] else ready)
                finally:
                    site.stop()
                    if wyoming is not None:
                        wyoming.close()
        except KeyboardInterrupt:
            command.stderr.write("Stopped.")


def wyoming_server(site_host: str, options: dict[str, Any]) -> WyomingServer | None:
    """Return the server that the options ask for, if any; raises as `WyomingServer`."""
    if options["wyoming"] is None:
        return None
    host, port = options["wyoming"]
    return WyomingServer(host or site_host, port, options["wyoming_user"] or "")
