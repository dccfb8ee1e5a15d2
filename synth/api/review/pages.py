"""Page through what is to be reviewed, worst first, and say how much is left."""

from __future__ import annotations

from typing import Any

from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from ttsweb.http.pagination import CreatedCursorPagination

_MOST = 2**63


class ReviewPagination(CreatedCursorPagination):
    """Worst first; `?limit=` from 1 to 100. Each page says how many there are in all."""

    ordering = ("rank", "id")
    page_size = 25
    max_page_size = 100
    left = 0

    def paginate_queryset(
        self, queryset: Any, request: Request, view: Any = None
    ) -> list[Any] | None:
        """Return a page's rows; what else is told of them is read for these alone."""
        self.left = queryset.order_by().count()
        ranks = queryset.values("rank", "id")
        page: list[Any] = super().paginate_queryset(ranks, request, view) or []
        rows = queryset.order_by().in_bulk([one["id"] for one in page]) if page else {}
        return [rows[one["id"]] for one in page if one["id"] in rows]

    def decode_cursor(self, request: Request) -> Any:
        """Return where a page begins, None for the first one.

        Raises:
            ValidationError: 400 cursor_invalid.
        """
        cursor = super().decode_cursor(request)
        if cursor is not None and cursor.position is not None and not _is_rank(cursor.position):
            sentence = (
                "This cursor does not belong to this list; use the URL in `next` or `previous`."
            )
            detail = [ErrorDetail(sentence, code="cursor_invalid")]
            raise ValidationError({self.cursor_query_param: detail})
        return cursor

    def get_paginated_response(self, data: Any) -> Response:
        """Return a page with the number of all that the filters let through."""
        answer = super().get_paginated_response(data)
        answer.data = {"left": self.left, **answer.data}
        return answer

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Describe a page."""
        found: dict[str, Any] = super().get_paginated_response_schema(schema)
        found["properties"] = {
            "left": {"type": "integer", "description": "The number of segments on all pages."},
            **found["properties"],
        }
        found["required"] = ["left", *found.get("required", [])]
        return found


def _is_rank(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20 and int(text) < _MOST
