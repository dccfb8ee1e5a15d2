"""Send the steps of a remote worker to its site, with growing pauses while it is away."""

from __future__ import annotations

import logging
import random
import ssl
import threading
import time
from typing import TypeVar
from urllib.parse import urlsplit

import httpx

from ttsweb.client.http import error_of
from ttsweb.http.problems import PROBLEM_TYPE
from workers.kinds import SiteAwayError, SiteRefusedError
from workers.remote import messages as m
from workers.remote.options import check_server, is_loopback

logger = logging.getLogger(__name__)

ANSWER_SECONDS, CONNECT_SECONDS = 20.0, 10.0
KEEP_SECONDS = 4.0  # of a connection without calls: a site closes it after 5
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 5.0
_PASSING = frozenset({408, 425, 429, 502, 503, 504, 507})
_FOR_GOOD = frozenset({401, 403, 404, 405, 409, 410, 426})
Answer = TypeVar("Answer", bound=m.Part)


class SiteFailedError(Exception):
    """The site answered a step with an error that another try would meet again."""


def _is_untrusted(error: BaseException | None) -> bool:
    """Return whether a certificate was behind an error."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


class Connection:
    """Call a site in the name of a worker; safe from every thread."""

    def __init__(self, url: str, key: str, *, name: str) -> None:
        self.url = check_server(url)
        self._headers = {
            "Authorization": f"Bearer {key}",
            "Content-Type": m.MEDIA_TYPE,
            m.PROTOCOL_HEADER: str(m.PROTOCOL),
            m.NAME_HEADER: name,
        }
        self._verify = ssl.create_default_context()  # the system's authorities, or SSL_CERT_FILE's
        # One of each thread: where threads share one, a thread that clears away an old connection
        # can close it while another one begins to use it, which then waits in vain for an answer.
        self._clients = threading.local()
        self.refusal = ""  # why the site does not let this worker in
        self._was_let_in = False  # an address that is wrong never answers a step
        self._pause, self._next_at = 0.0, 0.0
        self._lock = threading.Lock()

    @property
    def _client(self) -> httpx.Client:
        if not hasattr(self._clients, "own"):
            self._clients.own = httpx.Client(
                base_url=self.url + m.ROOT,
                headers=self._headers,
                timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
                limits=httpx.Limits(keepalive_expiry=KEEP_SECONDS),
                verify=self._verify,
                trust_env=not is_loopback(urlsplit(self.url).hostname or ""),  # for its proxies
            )
        client: httpx.Client = self._clients.own
        return client

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
            self._was_let_in = True
            return found
        problem = error_of(response)
        is_of_site = response.headers.get("content-type", "").startswith(PROBLEM_TYPE)
        # A proxy answers by itself while the site behind it is moved, started or cut off.
        is_of_proxy = not is_of_site and (self._was_let_in or response.is_server_error)
        if status in _PASSING or is_of_proxy:
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
