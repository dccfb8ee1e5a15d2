"""Page through lists by cursor: stable while rows arrive. Imports no views, as DRF asks."""

from __future__ import annotations

from typing import Any

from rest_framework.exceptions import ErrorDetail, NotFound, ValidationError
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request


class CreatedCursorPagination(CursorPagination):
    """Newest first; `?limit=` from 1 to 200."""

    ordering = ("-created_at", "-id")
    page_size = 50
    page_size_query_param = "limit"
    max_page_size = 200

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = super().get_schema_operation_parameters(view)
        for parameter in found:
            if parameter["name"] == self.page_size_query_param:
                parameter["schema"] |= {"minimum": 1, "maximum": self.max_page_size}
        return found

    def decode_cursor(self, request: Request) -> Any:
        """Return where a page begins, None for the first one.

        Raises:
            ValidationError: 400 cursor_invalid; DRF would say that the list is not there.
        """
        try:
            return super().decode_cursor(request)
        except NotFound as error:
            raise self.cursor_invalid() from error

    def cursor_invalid(self) -> ValidationError:
        sentence = "This cursor does not belong to this list; use the URL in `next` or `previous`."
        return ValidationError(
            {self.cursor_query_param: [ErrorDetail(sentence, code="cursor_invalid")]}
        )

    def get_page_size(self, request: Request) -> int:
        """Return how many rows a page has.

        Raises:
            ValidationError: `?limit=` is not a whole number from 1 to 200.
        """
        limit = request.query_params.get("limit")
        if limit is None:
            return self.page_size
        is_number = limit.isascii() and limit.isdigit() and len(limit) < 9
        if not is_number or not 1 <= int(limit) <= self.max_page_size:
            sentence = f"expected a whole number from 1 to {self.max_page_size}"
            raise ValidationError({"limit": [ErrorDetail(sentence, code="invalid")]})
        return int(limit)


class ItemCursorPagination(CreatedCursorPagination):
    """In the order of a batch's items; `?limit=` from 1 to 200."""

    ordering = ("item_index", "id")


class IndexCursorPagination(CreatedCursorPagination):
    """In the order of the rows' `index`; `?limit=` from 1 to 200."""

    ordering = ("index", "id")
