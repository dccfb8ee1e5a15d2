"""Open the server that commands talk to, and tell its errors as commands do."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager

from ttsweb import settings
from ttsweb.client import (
    ApiError,
    AuthenticationError,
    Client,
    ClientError,
    ServerUnreachableError,
)
from ttsweb.commands.base import Output
from ttsweb.commands.errors import StepError, errors_told

RETRIES = 3  # about three seconds: a person waits


def server_url() -> str:
    """Return TTS_URL, else where `./tts serve` listens on this machine."""
    if settings.SERVER_URL:
        return str(settings.SERVER_URL)
    host = settings.HOST
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return f"http://{host}:{settings.PORT}"
    if address.is_unspecified:  # all addresses, of which this is one
        host = "127.0.0.1" if address.version == 4 else "::1"
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.PORT}"


def open_client() -> Client:
    """Return a client of the server with the key of the settings.

    Raises:
        StepError: api_key_missing, with how to get one.
        ClientError: TTS_URL or TTS_API_KEY cannot be used.
    """
    if not settings.API_KEY:
        raise StepError(
            "api_key_missing",
            f"Set TTS_API_KEY to an API key of {server_url()}. Its admin makes keys at "
            '"API keys"; on the server\'s machine, ./tts create_key --user NAME --name '
            "LABEL makes one as well.",
        )
    return Client(server_url(), settings.API_KEY, retries=RETRIES)


@contextmanager
def remote_errors_told(stdout: Output, *, as_json: bool) -> Iterator[None]:
    """Turn what ends a command into one line and exit code 1; with JSON also into one object.

    Raises:
        CommandError: `code: sentence`.
    """
    with errors_told(stdout, as_json=as_json):
        try:
            yield
        except ClientError as error:
            raise StepError(error.code, _sentence(error)) from error
        except OSError as error:
            reason = error.strerror or str(error)
            where = f"{error.filename}: " if error.filename else ""
            raise StepError("file_error", f"{where}{reason}.") from error


def _sentence(error: ClientError) -> str:
    """Return what to do about an error, in the words of who sits at the command line."""
    if isinstance(error, ServerUnreachableError):
        if settings.SERVER_URL:
            return f"{error} Check the address in TTS_URL."
        return f"{error} ./tts serve starts a server here; TTS_URL can name another one."
    if isinstance(error, AuthenticationError) and error.status == 401:
        return f"{error} Set TTS_API_KEY to a key of {server_url()}."
    if isinstance(error, ApiError) and error.code in ("job_not_finished", "batch_not_finished"):
        return f"{error} --follow waits for it."
    return str(error)
