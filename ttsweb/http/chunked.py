"""Tell Django how long a body is that came in chunks: without a length it is taken for empty."""

from __future__ import annotations

import os
from typing import IO, Any

import django
from django.core.handlers.asgi import ASGIHandler


class MeasuringHandler(ASGIHandler):
    """Serve Django; a request without a Content-Length gets that of the body that came."""

    def create_request(self, scope: Any, body_file: IO[bytes]) -> Any:
        """Return the request and None, or None and an answer."""
        if not any(name.lower() == b"content-length" for name, _ in scope["headers"]):
            size = body_file.seek(0, os.SEEK_END)
            body_file.seek(0)
            if size:
                length = (b"content-length", str(size).encode())
                scope = {**scope, "headers": [*scope["headers"], length]}
        return super().create_request(scope, body_file)


def get_asgi_application() -> ASGIHandler:
    """Set Django up and return its application."""
    django.setup(set_prefix=False)
    return MeasuringHandler()
