"""Refuse request bodies above a limit before they are written to disk, and files while they come.

Django's ASGI handler spools a whole body before any upload handler sees a byte of it, so the
limit of bodies has to stand in front of Django.
"""

from __future__ import annotations

import os
from typing import IO, Any, ClassVar

import django
from asgiref.sync import sync_to_async
from django.core.exceptions import RequestDataTooBig
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ttsweb.http.asgi_ask import AsgiApp, Message, Receive, Scope, Send, path_of
from ttsweb.http.problems import send_problem


class BodyLimit:
    """Wrap an ASGI application; a body of more than `max_bytes` is answered with a 413."""

    def __init__(self, app: AsgiApp, *, max_bytes: int) -> None:
        self._app, self._max_bytes = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if _declared_bytes(scope) > self._max_bytes:
            await self._refuse(scope, send)
            return
        received = 0

        async def receive_counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise _BodyTooLargeError
            return message

        try:
            await self._app(scope, receive_counted, send)
        except _BodyTooLargeError:  # while the body was read, so no answer has begun
            await self._refuse(scope, send)

    async def _refuse(self, scope: Scope, send: Send) -> None:
        detail = f"The request is too large: at most {self._max_bytes} bytes are allowed."
        headers = {"connection": "close"}
        await send_problem(send, 413, "body_too_large", detail, headers, path_of(scope))


class _BodyTooLargeError(Exception):
    """More bytes came than are taken."""


def _declared_bytes(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name.lower() == b"content-length" and value.isdigit():
            return int(value)
    return 0


class MeasuringHandler(ASGIHandler):
    """Serve Django; a request without a Content-Length gets that of the body that came.

    Views and some middleware are synchronous. Django would change to a thread and back for each
    middleware; here all of them and the view run in one call in a thread.
    """

    def load_middleware(self, is_async: bool = False) -> None:
        super().load_middleware(is_async=False)

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        return await sync_to_async(self.get_response, thread_sensitive=True)(request)

    def create_request(self, scope: Any, body_file: IO[bytes]) -> Any:
        if not any(name.lower() == b"content-length" for name, _ in scope["headers"]):
            size = body_file.seek(0, os.SEEK_END)
            body_file.seek(0)
            if size:
                length = (b"content-length", str(size).encode())
                scope = {**scope, "headers": [*scope["headers"], length]}
        return super().create_request(scope, body_file)


def get_asgi_application() -> ASGIHandler:
    django.setup(set_prefix=False)
    return MeasuringHandler()


class UploadTooLargeError(RequestDataTooBig):
    """A file of an upload has too many bytes; becomes a 413 with this code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class LimitHandler(FileUploadHandler):
    """Count the bytes of each file; the handlers behind this one keep them.

    Attributes:
        code: of the refusal.
    """

    code: ClassVar[str]

    def max_bytes(self) -> int:
        raise NotImplementedError

    def sentence(self) -> str:
        raise NotImplementedError

    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes:
        """Hand a chunk on.

        Raises:
            UploadTooLargeError: the file has too many bytes.
        """
        if start + len(raw_data) > self.max_bytes():
            request = self.request  # Django would remove what the others wrote at a later moment
            for handler in request.upload_handlers if request is not None else ():
                handler.upload_interrupted()
            raise UploadTooLargeError(self.code, self.sentence())
        return raw_data

    def file_complete(self, file_size: int) -> UploadedFile[bytes] | None:
        return None
