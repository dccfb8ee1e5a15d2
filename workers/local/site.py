"""Run the site for a command: the web server as a child process, and what stands beside it.

That is a worker and, where it is asked for, the process that serves the Wyoming protocol. That one
and the tools for agents speak as an account of this machine, with a key that stands for it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.db import DatabaseError, InterfaceError
from django.db import connection as database

from synth.accounts.access import KeyRejectedError, create_key, find_key, renew_key
from synth.models import ApiKey
from ttsweb.commands.base import BaseCommand, StepError, reporting_errors
from ttsweb.http import listen
from ttsweb.http.listen import url_of
from ttsweb.install.extras import require_extra
from ttsweb.migration import migrate_once
from ttsweb.private_files import FILE_MODE
from workers.local.children import (
    LOOK_SECONDS,
    Child,
    open_standard_streams,
    signals_interrupt,
    stop_all,
)
from workers.local.local_worker import LocalWorker
from workers.management.commands.serve import AUTO

SCOPES = (ApiKey.Scope.READ, ApiKey.Scope.JOBS)
MAX_NAME_CHARS = 100


def find_account(name: str, option: str) -> User:
    """Return the account of this name, or the only one.

    Args:
        option: what a person names an account with.

    Raises:
        StepError: user_not_found; user_missing, there is none; user_ambiguous, there are several.
    """
    users = User.objects.filter(is_active=True)
    if name:
        user = users.filter(username=name).first()
        if user is None:
            raise StepError("user_not_found", f"There is no active user named {name!r}.")
        return user
    some = list(users.order_by("pk")[:2])
    if not some:
        raise StepError(
            "user_missing", "There is no user who could speak; ./tts createsuperuser makes one."
        )
    if len(some) > 1:
        raise StepError(
            "user_ambiguous",
            f"There are several users. Name the one who speaks with {option}, or give a key of "
            "his in TTS_API_KEY",
        )
    return some[0]


def new_secret(user: User, name: str) -> str:
    """Return a secret of the account's key of this name, which is made where there is none.

    It is one row whatever happens, so that limits which the admin gives it stay; the secret that it
    had opens nothing any more. One that was revoked stays so.
    """
    name = name[:MAX_NAME_CHARS]
    row = ApiKey.objects.filter(user=user, name=name, revoked_at=None).first()
    if row is not None:
        return renew_key(row)
    return create_key(user, name, scopes=SCOPES)[1]


def secret_of_tools(user_name: str) -> str:
    """Return the secret that the tools for agents act with; the database is made where need be."""
    migrate_once(settings.DATA_DIR)
    user = find_account(user_name, "--user")
    return kept_secret(user, "MCP", settings.DATA_DIR / "mcp_key")


def kept_secret(user: User, name: str, path: Path) -> str:
    """Return the secret that a file keeps, for processes that come and go beside each other.

    One that opens nothing, or is another account's, is replaced.
    """
    with contextlib.suppress(OSError, KeyRejectedError):
        key = path.read_text(encoding="ascii").strip()
        if find_key(key).user_id == user.pk:
            return key
    key = new_secret(user, name)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT, FILE_MODE), "w") as file:
        file.write(key)
    temporary.replace(path)
    return key


MODULE = "ttsweb.wyoming.process"


class WyomingServer:
    """A port that is open from the start, and later the process that serves it.

    Args:
        user_name: the account that speaks; empty is the only one that there is.
    """

    def __init__(self, host: str, port: int, user_name: str) -> None:
        """Open the port.

        Raises:
            StepError: extra_missing, or as `listen.open_socket` raises it.
        """
        require_extra("wyoming", "--wyoming")
        self._user_name = user_name
        try:
            self._listening = listen.open_socket(host, port, or_next=False)
        except listen.ListenError as error:
            if error.code != "port_taken":
                raise
            sentence = f"Port {port} on {host} is used by another program; give --wyoming another"
            raise StepError(error.code, sentence) from error

    @property
    def url(self) -> str:
        host, port = self._listening.getsockname()[:2]
        return f"tcp://{f'[{host}]' if ':' in host else host}:{port}"

    def child(self, site: socket.socket, site_url: str) -> Child:
        """Return the process, which is not started yet; the database must be there.

        Args:
            site: the socket that the site listens on, at `site_url` by a name that it accepts.

        Raises:
            StepError: nobody can tell which account speaks, or TTS_API_KEY opens nothing.
        """
        near = listen.near_url_of(site)
        number = self._listening.fileno()
        return Child(
            "wyoming",
            MODULE,
            [str(number), near, urlsplit(site_url).netloc],
            descriptors=[number],
            environment={"TTS_API_KEY": self._key()},
        )

    def close(self) -> None:
        self._listening.close()

    def _key(self) -> str:
        """Return the key of the settings, else a new secret of this host's own."""
        if settings.API_KEY and not self._user_name:
            try:
                find_key(settings.API_KEY)
            except KeyRejectedError as error:
                sentence = f"{error} It stands in TTS_API_KEY, with which --wyoming would speak."
                raise StepError(error.code, sentence) from error
            return str(settings.API_KEY)
        user = find_account(self._user_name, "--wyoming-user")
        return new_secret(user, f"Wyoming, {settings.WORKER_NAME or socket.gethostname()}")


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
            "ttsweb.http.listen",
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
