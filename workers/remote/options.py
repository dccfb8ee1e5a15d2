"""Say which options of `./tts worker` go with `--server`, before anything is started."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from ttsweb.commands.base import CommandError

ROLE = "gpu"  # the only one that needs no storage


class ServerUnfitError(Exception):
    """The address of the site, or the key, cannot be used; the sentence says why."""


def check_server(url: str) -> str:
    """Return the address of a site without a slash at its end.

    Raises:
        ServerUnfitError: it is none, or neither HTTPS nor this machine.
    """
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        raise ServerUnfitError(f"--server {url!r} is not an address: {error}.") from error
    if parts.scheme not in ("http", "https") or not host:
        raise ServerUnfitError(
            f"--server {url!r} is not an address; expected for example https://tts.example.org."
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ServerUnfitError("--server must have no user name, no ? and no #.")
    if parts.scheme == "http" and not is_loopback(host):
        raise ServerUnfitError(
            f"--server {url} would send the key and all texts unencrypted; use https://. Plain "
            "http:// is only for this machine itself."
        )
    return url.strip().rstrip("/")


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def key_for(options: Mapping[str, Any], role: str) -> str:
    """Return the key for the site of `--server`.

    Raises:
        CommandError: the options do not go together; the text says which.
    """
    key = str(options["key"] or settings.API_KEY or "")
    refused = {
        "--role gpu is the only one with --server: files are made where the site's storage is; "
        f"--role {role} needs its database.": role != ROLE,
        "--queues and --concurrency are of messages, which a worker with --server gets none of; "
        "leave them out.": bool(options["queues"]) or options["concurrency"] is not None,
        "--server needs a key with the scope worker: give it by --key, TTS_API_KEY or "
        "TTS_API_KEY_FILE.": not key,
        "TTS_TRANSCRIBER is for workers with a database; leave it out with --server.": bool(
            settings.TRANSCRIBER
        ),
    }
    for sentence, is_so in refused.items():
        if is_so:
            raise CommandError(sentence)
    try:
        check_server(options["server"])
    except ServerUnfitError as error:
        raise CommandError(str(error)) from error
    return key
