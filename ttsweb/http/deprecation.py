"""Announce that a route will go: by headers of each of its answers, and in its description.

    @deprecated(since=date(2027, 1, 1), sunset=date(2027, 7, 1), successor="/api/v2/jobs",
                more="https://…/CHANGELOG")
    class OldView(APIView): ...

`Deprecation` is that of RFC 9745 and `Sunset` that of RFC 8594: from the sunset on the route may be
gone. Nothing else about the route changes until then.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, TypeVar

from django.utils.http import http_date
from drf_spectacular.utils import extend_schema
from rest_framework.views import APIView

MIN_NOTICE = dt.timedelta(days=90)

View = TypeVar("View", bound=type[APIView])


def deprecated(
    *, since: dt.date, sunset: dt.date | None = None, successor: str = "", more: str = ""
) -> Callable[[View], View]:
    """Return a decorator that announces the end of a view's routes.

    Args:
        since: the day from which new clients should not use it; it may lie ahead.
        sunset: the day from which it may be gone; None while that is open.
        successor: address of what does the same from now on.
        more: address of a page that tells how to change over.

    Raises:
        ValueError: there are fewer than 90 days between the two.
    """
    if sunset is not None and sunset - since < MIN_NOTICE:
        raise ValueError(f"a route is announced {MIN_NOTICE.days} days before it goes")
    headers = _headers(since, sunset, successor, more)

    def announce(view: View) -> View:
        finalize: Any = view.finalize_response

        def finalize_response(self: APIView, *args: Any, **kwargs: Any) -> Any:
            answer = finalize(self, *args, **kwargs)
            for name, value in headers.items():
                answer[name] = f"{answer[name]}, {value}" if _is_list(name, answer) else value
            return answer

        view.finalize_response = finalize_response  # type: ignore[method-assign]  # as wanted
        marked: View = extend_schema(deprecated=True)(view)
        return marked

    return announce


def _headers(since: dt.date, sunset: dt.date | None, successor: str, more: str) -> dict[str, str]:
    headers = {"Deprecation": f"@{_seconds(since)}"}
    if sunset is not None:
        headers["Sunset"] = http_date(_seconds(sunset))
    links = [
        f'<{address}>; rel="{relation}"'
        for address, relation in ((successor, "successor-version"), (more, "deprecation"))
        if address
    ]
    if links:
        headers["Link"] = ", ".join(links)
    return headers


def _seconds(day: dt.date) -> int:
    return int(dt.datetime.combine(day, dt.time(), tzinfo=dt.UTC).timestamp())


def _is_list(name: str, answer: Any) -> bool:
    return name == "Link" and answer.has_header(name)
