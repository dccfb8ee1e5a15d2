"""Serve the Wyoming protocol beside the site: its port, the key that it acts with, its process."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from django.conf import settings

from synth.accounts.keys import KeyRejectedError, find_key
from ttsweb.commands.base import StepError
from ttsweb.http import listen
from ttsweb.install.extras import require_extra
from workers.local.account_key import find_account, new_secret
from workers.local.children import Child

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
