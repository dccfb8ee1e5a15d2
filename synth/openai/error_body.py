"""Shape an error as clients of OpenAI's API expect it; needs neither Django nor its REST half."""

from __future__ import annotations

from typing import Any

START = "/v1/"
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def error_body(status: int, code: str, message: str, *, param: str | None = None) -> dict[str, Any]:
    """Return `{"error": {message, type, param, code}}`; `param` is the request field at fault."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
