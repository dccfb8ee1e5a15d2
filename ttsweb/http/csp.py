"""Tell browsers what a page may load: everything from this site alone, and nothing inline.

The admin's scripts (Alpine) build functions from the texts of attributes and set styles inline, so
its pages, and only they, are allowed that. Without it nobody could log in.
"""

from __future__ import annotations

from collections.abc import Mapping

from django.http import HttpRequest, HttpResponseBase
from django.utils.deprecation import MiddlewareMixin

HEADER = "Content-Security-Policy"
_DIRECTIVES = {
    "default-src": "'self'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",  # the style sheets of the admin and of the API page hold small icons
    "media-src": "'self' blob:",  # a recording is played before it is sent
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
}
_ADMIN_DIRECTIVES = _DIRECTIVES | {
    "script-src": "'self' 'unsafe-eval'",
    "style-src": "'self' 'unsafe-inline'",
}


def policy_text(directives: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {sources}" for name, sources in directives.items())


STRICT_POLICY = policy_text(_DIRECTIVES)
ADMIN_POLICY = policy_text(_ADMIN_DIRECTIVES)


class ContentSecurityPolicyMiddleware(MiddlewareMixin):
    """Set the policy on every answer that has none of its own; audio files have a stricter one."""

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        response.headers.setdefault(HEADER, _policy_for(request))
        return response


def _policy_for(request: HttpRequest) -> str:
    """Return the admin's policy for a page that the admin's own URLs lead to, else the strict one.

    By the resolved view and not by the path's letters: `/administer` is not the admin.
    """
    found = request.resolver_match
    return ADMIN_POLICY if found is not None and "admin" in found.app_names else STRICT_POLICY
