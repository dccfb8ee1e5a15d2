"""Keep `tts_queue`, a view of the database: how much each role of workers has to do now.

It is a contract with programs that scale workers, such as KEDA: a row for each kind of work, always
all of them, with `kind`, `role` (gpu or cpu), `waiting` (rows that a worker would claim now),
`held` (rows that one has claimed) and `oldest_seconds` (since the first of those that wait was
due). What waits for another codec than that of its voices counts too: a worker encodes them anew.

It is made after migrations, not by one, and goes before them: neither database changes every table
below a view. Whoever was granted a look keeps it.
"""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db import connections
from django.db.models.signals import post_migrate, pre_migrate
from django.dispatch import receiver

VIEW = "tts_queue"

# Of each vendor: this moment, and the seconds since one; SQLite keeps moments as text.
_NOW = {
    "postgresql": "statement_timestamp()",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now')",
}
_MOMENT = {"postgresql": "{0}", "sqlite": "substr({0}, 1, 23)"}  # to a millisecond
_SECONDS = {
    "postgresql": "CAST(EXTRACT(EPOCH FROM statement_timestamp() - {0}) AS double precision)",
    "sqlite": "(julianday('now') - julianday({0})) * 86400.0",
}
# Kind, role, table, its column of states, the states of a row that waits and of one that is held.
_LEASED = (
    ("version", "gpu", "voices_voiceversion", "status", "pending", "encoding"),
    ("transcript", "gpu", "voices_transcript", "status", "queued", "transcribing"),
    ("export", "cpu", "synth_export", "status", "queued", "claimed"),
    ("delivery", "cpu", "synth_webhookdelivery", "status", "queued", "claimed"),
    ("book", "cpu", "synth_booksource", "state", "importing", "importing"),
    ("book_file", "cpu", "synth_bookfile", "status", "queued", "claimed"),
)
# Jobs whose segments may be rendered, as `synth.transitions.claims.claimable_segments` has it.
_SPEAKING = """
SELECT j.id FROM synth_renderjob j WHERE j.status IN ('queued', 'running')
AND NOT j.cancel_requested AND j.paused_at IS NULL
AND (j.deadline_at IS NULL OR {deadline} > {now})
AND NOT EXISTS (
    SELECT 1 FROM synth_jobvoice p
    JOIN voices_voiceversion v ON v.id = p.version_id
    LEFT JOIN voices_voice w ON w.id = v.voice_id
    LEFT JOIN auth_user u ON u.id = j.owner_id
    WHERE p.job_id = j.id AND (
        v.status <> 'ready' OR w.deleted_at IS NOT NULL OR w.consent_withdrawn_at IS NOT NULL
        OR (NOT w.shared AND NOT u.is_superuser AND w.owner_id <> j.owner_id)))
"""
_RENDERING = (
    "SELECT r.content_key FROM synth_segment r WHERE r.status = 'claimed' AND r.content_key <> ''"
)


def view_query(vendor: str) -> str:
    """Return the query that the view is, for one of the two databases."""
    parts = [_leased(vendor, *one) for one in _LEASED]
    speaking = _SPEAKING.format(now=_NOW[vendor], deadline=_MOMENT[vendor].format("j.deadline_at"))
    source = f"synth_segment s LEFT JOIN ({speaking}) o ON o.id = s.job_id"
    waits = f"s.status = 'queued' AND o.id IS NOT NULL AND s.content_key NOT IN ({_RENDERING})"
    where = "s.status IN ('queued', 'claimed')"
    parts.append(_part(vendor, "segment", "gpu", source, waits, where))
    return " UNION ALL ".join(parts)


def _leased(
    vendor: str, kind: str, role: str, table: str, state: str, waiting: str, held: str
) -> str:
    waits = f"s.claim_token IS NULL AND s.{state} = '{waiting}'"
    return _part(vendor, kind, role, f"{table} s", waits, f"s.{state} IN ('{waiting}', '{held}')")


def _part(vendor: str, kind: str, role: str, source: str, waits: str, where: str) -> str:
    due = _MOMENT[vendor].format("s.not_before")
    is_due = f"{waits} AND {due} <= {_NOW[vendor]}"
    seconds = _SECONDS[vendor].format("s.not_before")
    return (
        f"SELECT '{kind}' AS kind, '{role}' AS role, "
        f"COUNT(CASE WHEN {is_due} THEN 1 END) AS waiting, COUNT(s.claim_token) AS held, "
        f"COALESCE(MAX(CASE WHEN {is_due} THEN {seconds} END), 0.0) AS oldest_seconds "
        f"FROM {source} WHERE {where}"
    )


_GRANTED = """
SELECT grantee FROM information_schema.table_privileges
WHERE table_schema = current_schema() AND table_name = %s AND privilege_type = 'SELECT'
AND grantee <> current_user
"""
_readers: list[str] = []  # of the view that went


@receiver(pre_migrate)
def drop_view(sender: AppConfig, using: str, plan: Any = (), **_: Any) -> None:
    database = connections[using]
    if sender.label != "synth" or not plan:
        return
    with database.cursor() as cursor:
        if database.vendor == "postgresql":
            cursor.execute(_GRANTED, [VIEW])
            _readers.extend(name for (name,) in cursor.fetchall())
        cursor.execute(f"DROP VIEW IF EXISTS {VIEW}")


@receiver(post_migrate)
def make_view(sender: AppConfig, using: str, plan: Any = (), **_: Any) -> None:
    """Make the view, after migrations alone: a flush, between two tests, ends here as well."""
    database = connections[using]
    if sender.label != "synth" or not plan:
        return
    tables = {"synth_segment", *(one[2] for one in _LEASED)}
    with database.cursor() as cursor:
        if not tables <= set(database.introspection.table_names(cursor)):
            return  # some were taken back
        cursor.execute(f"CREATE VIEW {VIEW} AS {view_query(database.vendor)}")
        for name in _readers:
            role = name if name == "PUBLIC" else database.ops.quote_name(name)
            cursor.execute(f"GRANT SELECT ON {VIEW} TO {role}")
    _readers.clear()
