"""Shape an error as clients of OpenAI's API expect it; needs neither Django nor its REST half."""

from __future__ import annotations

from typing import Any

START = "/v1/"
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def error_body(status: int, code: str, message: str, *, param: str | None = None) -> dict[str, Any]:
    """Return `{"error": {message, type, param, code}}`; `param` is the request field at fault.

    What a request says may come back in it, so halves of surrogate pairs, which UTF-8 cannot write,
    are replaced.
    """
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    error = {"message": _writable(message), "type": kind, "code": code}
    return {"error": error | {"param": None if param is None else _writable(param)}}


def _writable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
