"""Read in SQL what a segment's `candidates` say of the take that it keeps."""

from __future__ import annotations

from typing import Any

from django.db.models import BooleanField, F, FloatField, Func, TextField
from django.db.models.expressions import Combinable

UNSCORED = 0.1  # the score of a take that nothing else was measured of
_Query = tuple[str, tuple[Any, ...]]


class _OfKept(Func):
    """One value of the candidate whose take is kept; NULL where there is none.

    Takes the columns of the candidates and of the take; `name` is the candidate's key.
    """

    name = ""
    postgresql_value = "one.value ->> '{name}'"
    sqlite_value = "json_extract(one.value, '$.{name}')"

    def __init__(self) -> None:
        columns: tuple[Combinable, ...] = (F("candidates"), F("take_id"))
        super().__init__(*columns)

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> _Query:
        """Return the query for PostgreSQL."""
        value = self.postgresql_value.format(name=self.name, unscored=UNSCORED)
        return self._select(
            compiler,
            f"SELECT {value} FROM jsonb_array_elements({{candidates}}) AS one(value)"
            " WHERE one.value ->> 'take' = {take}::text LIMIT 1",
        )

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> _Query:
        """Return the query for SQLite, whose ids have no hyphens."""
        value = self.sqlite_value.format(name=self.name, unscored=UNSCORED)
        return self._select(
            compiler,
            f"SELECT {value} FROM json_each({{candidates}}) AS one"
            " WHERE replace(json_extract(one.value, '$.take'), '-', '') = {take} LIMIT 1",
        )

    def _select(self, compiler: Any, query: str) -> _Query:
        found = [compiler.compile(one) for one in self.get_source_expressions()]
        (candidates, first), (take, second) = found
        return f"({query.format(candidates=candidates, take=take)})", (*first, *second)


class KeptScore(_OfKept):
    """The score of the kept take among the segment's takes; NULL where nothing was screened."""

    name = "score"
    postgresql_value = "CAST(one.value ->> '{name}' AS double precision)"
    output_field = FloatField()


class KeptFlags(_OfKept):
    """The flags of the kept take as a text of JSON, such as `["noise"]`."""

    name = "flags"
    output_field = TextField()


class KeptIsChosen(_OfKept):
    """Whether a person listened to the kept take and said that it is good."""

    name = "chosen"
    postgresql_value = "CAST(one.value ->> '{name}' AS boolean)"
    output_field = BooleanField()


class KeptFlaggedScore(_OfKept):
    """The score of a kept take that has flags and that nobody approved; NULL of any other.

    One look at the candidates tells what ranks a segment: a list looks at many thousands of them.
    """

    name = "score"
    postgresql_value = (
        "CASE WHEN COALESCE(one.value ->> 'flags', '[]') <> '[]'"
        " AND COALESCE(CAST(one.value ->> 'chosen' AS boolean), false) = false"
        " THEN COALESCE(CAST(one.value ->> '{name}' AS double precision), {unscored}) END"
    )
    sqlite_value = (
        "CASE WHEN COALESCE(json_extract(one.value, '$.flags'), '[]') <> '[]'"
        " AND NOT COALESCE(json_extract(one.value, '$.chosen'), 0)"
        " THEN COALESCE(json_extract(one.value, '$.{name}'), {unscored}) END"
    )
    output_field = FloatField()
