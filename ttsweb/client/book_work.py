"""What can be changed of a book's casting, credits, pauses and priority, as the client sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict, cast

from ttsweb.client.http import Http, read_json
from ttsweb.client.paths import path_of

if TYPE_CHECKING:
    from ttsweb.client.books import Book


class Casting(TypedDict, total=False):
    """Who speaks beside the narrator; voices are ids or names."""

    dialogue: str  # off, or detect with `dialogue_voice`
    dialogue_voice: str
    characters: dict[str, str]
    languages: dict[str, str]


class BookWork:
    """How a book is spoken; a part of `Books`."""

    _http: Http

    def set_casting(
        self, book_id: str, casting: Casting | None, *, plan_number: int | None = None
    ) -> dict[str, Any]:
        """Say before the start who speaks beside the narrator, and return the plan.

        Args:
            casting: takes the place of the one so far; None lets the narrator speak all.
            plan_number: of the plan that was looked at; another one meanwhile is a ConflictError.
        """
        return self._change_plan(book_id, {"casting": casting}, plan_number)

    def set_credits(
        self,
        book_id: str,
        *,
        opening: str | None = None,
        closing: str | None = None,
        plan_number: int | None = None,
    ) -> dict[str, Any]:
        """Give a book credits before its start, and return the plan.

        Args:
            opening, closing: templates; empty for none, None leaves what there is.
        """
        given = {"opening_credits": opening, "closing_credits": closing}
        body = {name: value for name, value in given.items() if value is not None}
        return self._change_plan(book_id, body, plan_number)

    def set_pauses(self, book_id: str, pauses: Mapping[str, int | None]) -> Book:
        """Change how long pauses are, in ms by name; None is the usual length.

        Of a book that has its file only that is made again; nothing is rendered.
        """
        path = path_of("books", book_id, "/pauses")
        answer = self._http.send("PATCH", path, json=dict(pauses))
        return cast("Book", read_json(answer))

    def set_priority(self, book_id: str, priority: str) -> Book:
        """Move a book to the class `interactive` or `bulk`.

        Raises:
            ConflictError: job_ended.
        """
        path = path_of("books", book_id, "/priority")
        answer = self._http.send("POST", path, json={"priority": priority}, repeatable=True)
        return cast("Book", read_json(answer))

    def _change_plan(
        self, book_id: str, body: Mapping[str, Any], plan_number: int | None
    ) -> dict[str, Any]:
        fields = dict(body) if plan_number is None else {**body, "plan_number": plan_number}
        path = path_of("books", book_id, "/plan")
        answer = self._http.send("PATCH", path, json=fields, repeatable=False)
        return cast("dict[str, Any]", read_json(answer))
