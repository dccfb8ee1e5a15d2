"""Know who asks, by an API key, and what the key may do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import SAFE_METHODS, IsAuthenticated
from rest_framework.request import Request

from synth.accounts.access import KeyRejectedError, find_key
from synth.accounts.limits import KeyLimitError, count_request
from synth.models import ApiKey
from ttsweb.http.api import ApiProblem, problem_of
from ttsweb.http.asgi_ask import COUNTED

# Where clients of other services put their key: Azure's and ElevenLabs'.
KEY_HEADERS = ("api-key", "xi-api-key")


def bearer_key(headers: Mapping[str, str]) -> str | None:
    """Return the key of `Authorization: Bearer …`; headers are looked up in lower case."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


def presented_key(headers: Mapping[str, str]) -> str | None:
    """Return the key of a client of any service; an empty one counts only where there is no other.

    Args:
        headers: of a request or of a WebSocket's handshake, looked up in lower case.
    """
    keys = [bearer_key(headers), *(headers.get(name) for name in KEY_HEADERS)]
    given = [key.strip() for key in keys if key is not None]
    return next((key for key in given if key), given[0] if given else None)


class ApiKeyAuthentication(BaseAuthentication):
    """Authenticate by `Authorization: Bearer tts_…`; `request.auth` is then the ApiKey row."""

    def authenticate(self, request: Request) -> tuple[Any, ApiKey] | None:
        """Return the key's user and the key, or None when the request carries no bearer key.

        Every request with a key passes here, whatever it asks for, and so is counted here.
        """
        key = self.presented_key(request)
        if key is None:
            return None
        try:
            row = find_key(key)
        except KeyRejectedError as error:
            raise exceptions.AuthenticationFailed(str(error), code=error.code) from error
        if not getattr(request._request, "scope", {}).get(COUNTED):
            try:
                count_request(row)
            except KeyLimitError as error:
                raise problem_of(error) from error
        request._request.api_key = row  # type: ignore[attr-defined]  # for the audit log
        if ApiKey.Scope.ADMIN not in row.scopes:
            row.user.is_superuser = False  # in this request alone; the row is never saved here
        return row.user, row

    def presented_key(self, request: Request) -> str | None:
        """Return the key that a request carries, or None where it carries none."""
        return bearer_key(request.headers)

    def authenticate_header(self, request: Request) -> str:
        """Return what makes an unauthenticated request a 401."""
        return 'Bearer realm="api"'


class DialectKeyAuthentication(ApiKeyAuthentication):
    """Take the key also where clients of other services put it."""

    def presented_key(self, request: Request) -> str | None:
        return presented_key(request.headers)


class KeyPermission(IsAuthenticated):
    """Let users do what they may, and an API key only what its scopes name.

    Reading takes the scope `read`. A view that writes says by `write_scopes` which scope that
    takes; one that says nothing takes `admin`, so that a forgotten line gives nothing away.
    `read_scopes` names others for reading. One of several scopes is enough.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        """Return whether there is a user at all.

        Raises:
            ApiProblem: 403 scope_missing.
        """
        if not super().has_permission(request, view):
            return False
        key = key_of(request)
        is_served = hasattr(view, str(request.method).lower())  # else it is going to be a 405
        if key is not None and is_served:
            is_read = request.method in SAFE_METHODS
            default = (ApiKey.Scope.READ,) if is_read else (ApiKey.Scope.ADMIN,)
            needed = getattr(view, "read_scopes" if is_read else "write_scopes", default)
            if not set(needed) & set(key.scopes):
                sentence = (
                    f"This API key lacks the scope {str(needed[0])!r}; it has: "
                    f"{', '.join(key.scopes) or 'none'}. Use another key, or have the scope "
                    "added in the admin at “API keys”."
                )
                raise ApiProblem(403, "scope_missing", sentence)
        return True


def key_of(request: Request) -> ApiKey | None:
    """Return the API key of a request; None where a session opened it."""
    return request.auth if isinstance(request.auth, ApiKey) else None
