"""Serve the site and the API, and run the worker beside it in the embedded default."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError

from ttsweb.commands.base import BaseCommand

AUTO = 0  # the next free port


class Command(BaseCommand):
    help = (
        "Serve the site and the API, with a worker. If TTS_DATABASE_URL or TTS_REDIS_URL is "
        "set, no worker is started with the site: start workers with ./tts worker."
    )
    work = "workers.local.site:serve"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", help="address to listen on")
        parser.add_argument("--port", type=port, help="port, or auto for the next free one")
        here = parser.add_mutually_exclusive_group()
        here.add_argument("--worker", action="store_true", default=None, help="start a worker too")
        here.add_argument(
            "--no-worker", action="store_false", dest="worker", help="start no worker"
        )
        parser.add_argument(
            "--wyoming",
            type=address,
            metavar="[HOST:]PORT",
            help="serve the Wyoming protocol too, for Home Assistant, usually on port 10200",
        )
        parser.add_argument(
            "--wyoming-user",
            metavar="NAME",
            help="account whose voices and jobs Wyoming's clients use; default: the only one",
        )
        parser.add_argument(
            "--json", action="store_true", help="print one JSON object when the site is ready"
        )


def address(text: str) -> tuple[str, int]:
    """Return a host, empty for that of the site, and a port.

    Raises:
        ArgumentTypeError: there is no port.
    """
    host, _, number = text.rpartition(":")
    if (found := port(number)) == AUTO:
        raise ArgumentTypeError(f"{text!r} names no port, which the clients have to know")
    return host.removeprefix("[").removesuffix("]"), found


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
