"""Send the steps of a remote worker to its site, with growing pauses while it is away."""

from __future__ import annotations

import ipaddress
import logging
import random
import ssl
import threading
import time
from typing import TypeVar
from urllib.parse import urlsplit

import httpx

from ttsweb.client.http import error_of
from workers.errors import SiteAwayError, SiteRefusedError
from workers.remote import messages as m

logger = logging.getLogger(__name__)

ANSWER_SECONDS, CONNECT_SECONDS = 20.0, 10.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 5.0
_PASSING = frozenset({408, 425, 429, 502, 503, 504, 507})
_FOR_GOOD = frozenset({401, 403, 404, 405, 409, 410, 426})
Answer = TypeVar("Answer", bound=m.Part)


class SiteFailedError(Exception):
    """The site answered a step with an error that another try would meet again."""


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
    if parts.scheme == "http" and not _is_loopback(host):
        raise ServerUnfitError(
            f"--server {url} would send the key and all texts unencrypted; use https://. Plain "
            "http:// is only for this machine itself."
        )
    return url.strip().rstrip("/")


def _is_untrusted(error: BaseException | None) -> bool:
    """Return whether a certificate was behind an error."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Connection:
    """Call a site in the name of a worker; safe from every thread."""

    def __init__(self, url: str, key: str, *, name: str) -> None:
        self.url = check_server(url)
        headers = {
            "Authorization": f"Bearer {key}",
            "Content-Type": m.MEDIA_TYPE,
            m.PROTOCOL_HEADER: str(m.PROTOCOL),
            m.NAME_HEADER: name,
        }
        self._client = httpx.Client(
            base_url=self.url + m.ROOT,
            headers=headers,
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            verify=ssl.create_default_context(),  # the system's authorities, or SSL_CERT_FILE's
            trust_env=not _is_loopback(urlsplit(self.url).hostname or ""),  # for its proxies
        )
        self.refusal = ""  # why the site does not let this worker in
        self._pause, self._next_at = 0.0, 0.0
        self._lock = threading.Lock()

    def call(self, step: str, message: m.Part, answer: type[Answer]) -> Answer:
        """Take a step and return its answer, waiting first where the site was away.

        Raises:
            SiteAwayError: no answer; the step may have been taken, and may be taken again.
            SiteRefusedError: the site does not let this worker in.
            SiteFailedError: it failed at this step.
        """
        if self.refusal:
            raise SiteRefusedError(self.refusal)
        time.sleep(max(0.0, self._next_at - time.monotonic()))
        try:
            response = self._client.post(f"/{step}", content=m.write(message))
        except httpx.HTTPError as error:
            if _is_untrusted(error):
                self.refusal = f"The certificate of {self.url} cannot be trusted: {error}."
                raise SiteRefusedError(self.refusal) from error
            raise self._away(str(error).strip() or type(error).__name__) from error
        status = response.status_code
        if status == httpx.codes.OK:
            try:
                found = m.read(answer, response.content)
            except m.BadMessageError as error:  # such as a proxy's page
                raise self._away(f"it answered something else: {error}") from error
            self._pause = self._next_at = 0.0
            return found
        problem = error_of(response)
        if status in _PASSING:
            raise self._away(str(problem))
        if status in _FOR_GOOD or response.is_redirect:
            self.refusal = f"The site {self.url} does not let this worker in: {problem}"
            raise SiteRefusedError(self.refusal)
        raise SiteFailedError(f"{step}: {status} {problem}")

    def _away(self, reason: str) -> SiteAwayError:
        """Have all threads wait a little longer before they try again."""
        with self._lock:
            self._pause = min(max(2 * self._pause, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
            self._next_at = time.monotonic() + self._pause * random.uniform(0.5, 1.0)
        return SiteAwayError(f"no answer from {self.url} ({reason})")
