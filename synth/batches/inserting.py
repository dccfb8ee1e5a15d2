"""Insert many rows by their columns: what all rows have in common is prepared and sent once.

For thousands of rows Django's `bulk_create` spends most of its time on the values of each object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from django.db import connection
from django.db.models import AutoField, Field, Model
from django.utils import timezone

if TYPE_CHECKING:  # Django's own class takes no type arguments while running
    _Field = Field[Any, Any]

_PLAIN = frozenset({str, int, float, bool, type(None)})  # every database takes these as they are


def insert_rows(model: type[Model], columns: Mapping[str, Sequence[Any]]) -> None:
    """Insert rows in their order, as `bulk_create` would: no signal is sent, nothing is read back.

    Args:
        columns: values by the names of columns (`job_id`, not `job`), all equally many; the other
            columns have the defaults of their fields.

    Raises:
        IntegrityError: as with `bulk_create`.
    """
    count = len(next(iter(columns.values())))
    if not count:
        return
    varying: dict[_Field, list[Any]] = {}
    common: dict[_Field, Any] = {}
    for field in model._meta.concrete_fields:
        values = columns.get(field.attname)
        if values is None and isinstance(field, AutoField):
            continue  # the database counts
        if values is None:
            common[field] = _prepared(field, _default_of(field))
        elif list(values).count(values[0]) == count:
            common[field] = _prepared(field, values[0])
        else:
            varying[field] = [_prepared(field, value) for value in values]
    if connection.vendor == "postgresql":
        _insert_arrays(model, varying, common, count)
    else:
        _insert_each(model, varying, common, count)


def columns_of(rows: Sequence[Model]) -> dict[str, list[Any]]:
    """Return the columns of unsaved rows whose primary key is set already."""
    fields = type(rows[0])._meta.concrete_fields
    return {field.attname: [getattr(row, field.attname) for row in rows] for field in fields}


def _default_of(field: _Field) -> Any:
    is_now = getattr(field, "auto_now", False) or getattr(field, "auto_now_add", False)
    return timezone.now() if is_now else field.get_default()


def _prepared(field: _Field, value: Any) -> Any:
    if type(value) in _PLAIN and not _is_json(field):
        return value
    return field.get_db_prep_save(value, connection)


def _is_json(field: _Field) -> bool:
    return field.get_internal_type() == "JSONField"


def _insert_each(
    model: type[Model],
    varying: Mapping[_Field, list[Any]],
    common: Mapping[_Field, Any],
    count: int,
) -> None:
    """Insert rows by one statement that is repeated inside the database's own library."""
    marks = ", ".join(["%s"] * (len(varying) + len(common)))
    sql = f"INSERT INTO {_names(model, [*varying, *common])} VALUES ({marks})"  # names are ours
    rows = zip(*varying.values(), *(repeat(value, count) for value in common.values()), strict=True)
    with connection.cursor() as cursor:
        cursor.executemany(sql, list(rows))


def _insert_arrays(
    model: type[Model],
    varying: Mapping[_Field, list[Any]],
    common: Mapping[_Field, Any],
    count: int,
) -> None:
    """Insert rows by one statement with an array for each column whose values differ."""
    same = ", ".join(f"%s::{_type_of(field)}" for field in common)
    arrays = ", ".join(f"%s::{_type_of(field)}[]" for field in varying)
    source = f"UNNEST({arrays}) AS given" if varying else "generate_series(1, %s)"
    chosen = ", ".join(filter(None, ("given.*" if varying else "", same)))
    sql = f"INSERT INTO {_names(model, [*varying, *common])} SELECT {chosen} FROM {source}"
    given: list[Any] = list(varying.values()) or [count]
    with connection.cursor() as cursor:
        cursor.execute(sql, [*common.values(), *given])


def _names(model: type[Model], fields: Sequence[_Field]) -> str:
    quote = connection.ops.quote_name
    columns = ", ".join(quote(str(field.column)) for field in fields)
    return f"{quote(model._meta.db_table)} ({columns})"


def _type_of(field: _Field) -> str:
    """Return a column's type without its length: a cast to that would cut what is too long."""
    return str(field.db_type(connection)).partition("(")[0]
