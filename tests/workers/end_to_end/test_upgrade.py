"""Databases with jobs in flight go to this version's tables and back; docs/upgrade.md says so."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation

from synth.models import RenderJob, Segment
from tests.sources import PROJECT
from tests.workers.pairs import Pair, assert_whole, submit, wait_ended, wait_for
from ttsweb.migration import migrate_once, missing_migrations

# The oldest state that this version takes; see `OldDatabaseError`.
FIRST = {"synth": "0001_tables", "voices": "0001_squashed"}
TEXT = (PROJECT / "docs" / "upgrade.md").read_text("utf-8")
ROWS = re.findall(r"^\| `(\w+) (\w+)` \| [^|]+ \| (\w+)[^|]* \| ([^|]+) \|$", TEXT, re.M)


def own_migrations() -> dict[tuple[str, str], migrations.Migration]:
    disk = MigrationLoader(None).disk_migrations
    return {key: one for key, one in disk.items() if key[0] in FIRST}


def is_additive(operation: Operation) -> bool:
    """Say whether code that does not know of a change reads and writes all rows as before it."""
    if isinstance(operation, migrations.AddField):
        field = operation.field
        return bool(field.null) or field.db_default is not models.NOT_PROVIDED
    if isinstance(operation, migrations.AlterField):  # of choices, which no database knows
        return isinstance(operation.field, models.CharField)
    if isinstance(operation, migrations.SeparateDatabaseAndState):
        return not operation.database_operations  # the code's defaults alone
    if isinstance(operation, migrations.RunSQL):  # views and indexes
        return True
    harmless = (migrations.CreateModel, migrations.AddIndex, migrations.AlterModelOptions)
    return isinstance(operation, harmless)


def test_table_lists_every_migration_and_tells_what_the_code_can() -> None:
    disk = own_migrations()
    listed = {(app, name): (back, beside.strip()) for app, name, back, beside in ROWS}
    assert sorted(listed) == sorted(disk), "put the new migration into docs/upgrade.md"
    for key, migration in disk.items():
        back, beside = listed[key]
        if key in FIRST.items():
            assert (back, beside) == ("no", "there are none")
            continue
        reversible = all(one.reversible for one in migration.operations)
        assert (back == "yes") == reversible, key
        if beside == "yes":
            assert all(map(is_additive, migration.operations)), key
        else:
            assert beside.startswith("no"), key


def tables() -> dict[str, list[tuple[Any, ...]]]:
    """Return the columns of each table of ours, as the database has them."""
    found = {}
    with connection.cursor() as cursor:
        for name in connection.introspection.table_names(cursor):
            if name.startswith(("synth_", "voices_")):  # not the view of the queue
                columns = connection.introspection.get_table_description(cursor, name)
                found[name] = sorted((one.name, one.type_code, one.null_ok) for one in columns)
    return found


def go_back() -> None:
    """Take back, newest first, all that can be taken back after the first migrations."""
    for app, name in FIRST.items():
        call_command("migrate", app, name, verbosity=0)


@pytest.mark.thorough
def test_jobs_in_flight_survive_the_way_back_and_forward(pair: Pair, tmp_path: Any) -> None:
    """Begin jobs, stop their worker hard, migrate, and let the next worker finish them."""
    newest = tables()
    go_back()
    first = tables()
    assert first.keys() < newest.keys()
    # What a database is after its first migrations alone, and what this one is after all of them.
    assert migrate_once(tmp_path) == len(own_migrations()) - len(FIRST)
    assert tables() == newest

    worker, voice = pair.start_with_voice()
    whole = submit(voice, sentences=2, first=100)
    wait_ended(whole)
    jobs = [submit(voice, sentences=12, first=12 * number) for number in range(2)]
    done = Segment.objects.filter(job__in=jobs, status="done")
    held = Segment.objects.filter(job__in=jobs, status="claimed")
    wait_for(lambda: done.exists() and held.exists(), what="some is rendered, some is held")
    worker.kill()
    assert RenderJob.objects.exclude(status__in=RenderJob.FINAL).exists()
    rendered = set(done.values_list("pk", "take"))

    go_back()
    assert tables() == first
    assert len(missing_migrations()) == len(own_migrations()) - len(FIRST)
    migrate_once(tmp_path)

    assert tables() == newest
    assert missing_migrations() == []
    again = pair.start_worker("another").wait_ready()
    wait_ended(*jobs)
    again.stop()
    assert_whole(whole, *jobs)
    assert rendered <= set(done.values_list("pk", "take"))  # nothing was rendered twice
