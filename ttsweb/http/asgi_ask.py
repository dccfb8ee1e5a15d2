"""Ask an application behind an ASGI wrapper, and keep its answer instead of sending it.

Views tell the wrappers around Django by a header what is to be done with their answer; that header
never reaches the client. A WebSocket has no view: what it wants goes through Django as a request of
the same sender, so that nothing about keys, voices or options is written a second time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from django.db import close_old_connections, connection

# Set by views on the answer for unfinished work; the wrapper keeps that answer back.
WAIT_HEADER = "TTS-Wait"
_OF_HANDSHAKE = (b"sec-websocket-", b"connection", b"upgrade", b"content-")  # headers of it alone
COUNTED = "tts.counted"  # in the scope of a request that is asked once more: it counts once

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Result = TypeVar("Result")
AsgiApp = Callable[[Any, Any, Any], Awaitable[None]]  # Django's types are narrower than ASGI's

logger = logging.getLogger(__name__)


@dataclass
class Answer:
    """Hold the messages of one answer; `said` is what its view told the wrapper, if anything."""

    messages: list[Message]
    said: str | None = None

    async def send_on(self, send: Send) -> None:
        for message in self.messages:
            await send(message)


def path_of(scope: Scope) -> str:
    """Return the path of a request below the one that this project is served at."""
    path: str = scope.get("path", "")
    return path.removeprefix(scope.get("root_path", ""))


def find_row(
    scope: Scope, pattern: re.Pattern[str], *, query: bytes = b""
) -> tuple[str, uuid.UUID] | None:
    """Return the two groups of a GET's path, a noun and an id; None for any other request.

    Args:
        query: what the query has to hold.
    """
    if scope["type"] != "http" or scope["method"] != "GET":
        return None
    found = pattern.fullmatch(path_of(scope))
    if found is None or query not in scope.get("query_string", b""):
        return None
    try:
        return found[1], uuid.UUID(found[2])
    except ValueError:
        return None


async def ask(app: AsgiApp, scope: Scope, header: str) -> Answer:
    """Return what the application answers to this request, which has no body.

    Args:
        header: the name of the header that is meant for the wrapper; it is taken out.
    """
    answer, name = Answer([]), header.lower().encode()
    is_read = False

    async def receive_nothing() -> Message:
        nonlocal is_read
        if is_read:
            await asyncio.Event().wait()  # Django watches for the end of the connection here
        is_read = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def keep(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            said = [value for key, value in headers if key.lower() == name]
            answer.said = said[-1].decode("latin-1") if said else None
            message = {**message, "headers": [h for h in headers if h[0].lower() != name]}
        answer.messages.append(message)

    await app(dict(scope), receive_nothing, keep)
    scope[COUNTED] = True
    return answer


async def until_left(
    work: Coroutine[Any, Any, Result], receive: Receive, on_end: Callable[[], object]
) -> Result | None:
    """Return what the work returns; None when the client leaves first, which cancels the work.

    Args:
        on_end: called once the work is over or not wanted any more, before it is cancelled.
    """
    sending = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(disconnected(receive))
    try:
        await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        on_end()
        for future in (sending, gone):
            future.cancel()
        [result, _] = await asyncio.gather(sending, gone, return_exceptions=True)
    if isinstance(result, Exception):
        raise result
    return None if isinstance(result, BaseException) else result


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


Run = Callable[..., Awaitable[Any]]  # of a blocking function with its arguments


class Rounds:
    """Look at something round after round while anybody wants that, for all of a process at once.

    What blocks runs in one thread, so that one connection to the database is used.
    """

    thread_name: ClassVar[str]
    failure: ClassVar[str]  # what the log says where the database cannot be asked

    def __init__(self) -> None:
        self._rounds: asyncio.Task[None] | None = None

    @property
    def is_wanted(self) -> bool:
        raise NotImplementedError

    async def look(self, run: Run) -> None:
        """Do one round; `run` returns None where what it runs has failed."""
        raise NotImplementedError

    async def rest(self, took: float) -> None:
        """Sleep until the next round; the last one took so many seconds."""
        raise NotImplementedError

    def start(self) -> bool:
        """Begin, unless it goes on already; return whether this did."""
        if self._rounds is not None and not self._rounds.done():
            return False
        self._rounds = asyncio.create_task(self._watch())
        return True

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, thread_name_prefix=self.thread_name)

        def run(read: Callable[..., Any], *given: Any) -> Awaitable[Any]:
            return loop.run_in_executor(thread, self._attempt, read, *given)

        try:
            while self.is_wanted:
                started = loop.time()
                await self.look(run)
                await self.rest(loop.time() - started)
        finally:
            thread.submit(lambda: connection.close())  # that of the thread; a server has few
            thread.shutdown(wait=False)  # waiting here would hold up every other request

    def _attempt(self, read: Callable[..., Any], *given: Any) -> Any:
        try:
            close_old_connections()
            return read(*given)
        except Exception:
            logger.warning(self.failure, exc_info=True)
            return None


@dataclass
class InnerAnswer:
    """Hold an answer; `headers` have small letters."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> dict[str, Any]:
        """Return the body as an object, empty where it is none."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


async def ask_inside(
    app: AsgiApp,
    scope: Scope,
    method: str,
    path: str,
    *,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    is_counted: bool = True,
) -> InnerAnswer:
    """Return what the application answers to a request of a socket's sender.

    Args:
        scope: the socket's.
        headers: what the request has besides the headers of the handshake.
        is_counted: False lets the request count towards the key's limit of requests.
    """
    answer, is_read = InnerAnswer(), False

    async def receive() -> Message:
        nonlocal is_read
        if is_read:
            await asyncio.Event().wait()  # Django watches for the end of the connection here
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def keep(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            for name, value in message.get("headers", ()):
                answer.headers[name.decode("latin-1").lower()] = value.decode("latin-1")
        elif message["type"] == "http.response.body":
            answer.body += message.get("body", b"")

    await app(_http_scope(scope, method, path, body, headers or {}, is_counted), receive, keep)
    return answer


def _http_scope(
    scope: Scope,
    method: str,
    path: str,
    body: bytes,
    headers: Mapping[str, str],
    is_counted: bool,
) -> Scope:
    kept = [pair for pair in scope["headers"] if not pair[0].lower().startswith(_OF_HANDSHAKE)]
    added = {**headers, "content-length": str(len(body))} if body else dict(headers)
    more: dict[str, Any] = {COUNTED: True} if is_counted else {}
    shared = ("asgi", "client", "server", "root_path", "state")
    full_path = scope.get("root_path", "") + path
    return {
        **{name: scope[name] for name in shared if name in scope},
        **more,
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "https" if scope.get("scheme") == "wss" else "http",
        "path": full_path,
        "raw_path": full_path.encode(),
        "query_string": b"",
        "headers": [*kept, *((name.encode(), value.encode()) for name, value in added.items())],
    }
