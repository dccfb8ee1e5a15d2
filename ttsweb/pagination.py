"""Page through lists by cursor: stable while rows arrive. Imports no views, as DRF asks."""

from __future__ import annotations

from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request


class CreatedCursorPagination(CursorPagination):
    """Newest first; `?limit=` from 1 to 200."""

    ordering = ("-created_at", "-id")
    page_size = 50
    page_size_query_param = "limit"
    max_page_size = 200

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
