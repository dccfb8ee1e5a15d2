"""Every route of the API, asked by another user: nothing of the first one's jobs is there for him.

The routes are read from the URL conf. A route or method without a case here fails the test, so that
whoever adds one has to say whose it is.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from rest_framework.test import APIClient

from synth.models import Export, RenderJob, Segment
from tests.factories import make_ended_job, make_job, make_user, make_voice
from voices.models import Voice

pytestmark = pytest.mark.django_db(transaction=True)

Route = tuple[str, str]  # name, method
SECRET = "A secret sentence of the owner."
KEY = "a-key-that-both-use"

# A job and all that is below it is its owner's: for everybody else it does not exist.
OWNED = {
    ("job", "GET"),
    ("job", "DELETE"),
    ("job", "PATCH"),
    ("job-audio", "GET"),
    ("job-segments", "GET"),
    ("job-events", "GET"),
    ("job-timestamps", "GET"),
    ("job-waveform", "GET"),
    ("job-cancel", "POST"),
    ("job-retry", "POST"),
}
# So do its segments; test_segment_views asks for them.
SEGMENTS = {
    ("job-segment", "GET"),
    ("job-segment-audio", "GET"),
    ("job-segment-render", "POST"),
    ("job-segment-choose", "POST"),
}
# A list shows what is one's own.
LISTS = {("jobs", "GET")}
# Something new is made for whoever asks.
MAKING = {("jobs", "POST")}
# Voices without an owner are everybody's to use, and all see how busy the service is. What belongs
# to a user, and what of it others may do, is asked for in tests/voices/test_ownership.
SHARED = {
    ("voices", "GET"),
    ("voices", "POST"),
    ("voice", "GET"),
    ("voice", "PATCH"),
    ("voice", "DELETE"),
    ("voice-encode", "POST"),
    ("voice-audio", "GET"),
    ("voice-export", "GET"),
    ("voices-import", "POST"),
    ("voices-import-codes", "POST"),
    ("stats", "GET"),
    ("overview", "GET"),
}
# So does what of them is reviewed; test_review_views asks for it.
REVIEW = {
    ("review", "GET"),
    ("review-segment", "GET"),
    ("review-approve", "POST"),
    ("review-approve-all", "POST"),
}
# Webhooks belong to their user alone; test_webhook_tenants asks for them.
WEBHOOKS = {
    ("webhook-secret", "GET"),
    ("webhook-secret-rotate", "POST"),
    ("webhook-endpoints", "GET"),
    ("webhook-endpoints", "POST"),
    ("webhook-endpoint", "GET"),
    ("webhook-endpoint", "PATCH"),
    ("webhook-endpoint", "DELETE"),
    ("webhook-endpoint-test", "POST"),
    ("webhook-deliveries", "GET"),
    ("webhook-delivery", "GET"),
    ("webhook-delivery-resend", "POST"),
}
# Batches and their items belong to their user alone; test_batch_tenants asks for them.
BATCHES = {
    ("batches", "GET"),
    ("batches", "POST"),
    ("batch", "GET"),
    ("batch", "DELETE"),
    ("batch-items", "GET"),
    ("batch-events", "GET"),
    ("batch-results", "GET"),
    ("batch-cancel", "POST"),
    ("batch-retry", "POST"),
}
# Books belong to their user alone; test_book_tenants asks for them.
BOOKS = {
    ("books", "GET"),
    ("books", "POST"),
    ("book", "GET"),
    ("book", "DELETE"),
    ("book-plan", "GET"),
    ("book-plan", "PATCH"),
    ("book-chapter", "GET"),
    ("book-start", "POST"),
    ("book-pause", "POST"),
    ("book-resume", "POST"),
    ("book-cancel", "POST"),
    ("book-retry", "POST"),
    ("book-pauses", "PATCH"),
    ("book-priority", "POST"),
    ("book-proof", "GET"),
    ("book-audio", "GET"),
}
# What is shown of books, and their files; tests/synth/books_api/test_files.py asks for them.
BOOK_FILES = {
    ("book", "PATCH"),
    ("book-metadata", "GET"),
    ("book-cover", "GET"),
    ("book-cover", "PUT"),
    ("book-cover", "DELETE"),
    ("book-files", "GET"),
    ("book-files", "POST"),
    ("book-file", "GET"),
    ("book-file", "DELETE"),
    ("book-file-content", "GET"),
    ("book-file-plot", "GET"),
}
# tests/synth/book_batches/test_views.py asks for them.
BOOK_BATCHES = {
    ("book-batches", "GET"),
    ("book-batches", "POST"),
    ("book-batch", "GET"),
    ("book-batch", "DELETE"),
    ("book-batch-entries", "GET"),
    ("book-batch-entries", "POST"),
    ("book-batch-report", "GET"),
    ("book-batch-events", "GET"),
    ("book-batch-close", "POST"),
    ("book-batch-pause", "POST"),
    ("book-batch-resume", "POST"),
    ("book-batch-cancel", "POST"),
    ("book-batch-retry", "POST"),
    ("book-batch-approve", "POST"),
    ("book-batch-priority", "POST"),
    ("book-approve", "POST"),
    ("book-sample", "GET"),
}
# A lexicon is its user's, or everybody's to read; test_lexicon_tenants asks for them.
LEXICONS = {
    ("lexicons", "GET"),
    ("lexicons", "POST"),
    ("lexicons-preview", "POST"),
    ("preview", "POST"),
    ("lexicon", "GET"),
    ("lexicon", "PATCH"),
    ("lexicon", "DELETE"),
    ("lexicon-entries", "GET"),
    ("lexicon-entries", "POST"),
    ("lexicon-entry", "PATCH"),
    ("lexicon-entry", "DELETE"),
    ("lexicon-export", "GET"),
    ("lexicon-import", "POST"),
}
# Keys are their user's, users a superuser's to manage; test_key_views asks for them.
ACCOUNTS = {
    ("keys", "GET"),
    ("keys", "POST"),
    ("key", "GET"),
    ("key", "PATCH"),
    ("key", "DELETE"),
    ("groups", "GET"),
    ("groups", "POST"),
    ("group", "GET"),
    ("group", "PATCH"),
    ("group", "DELETE"),
    ("permissions", "GET"),
    ("users", "GET"),
    ("users", "POST"),
    ("user", "GET"),
    ("user", "PATCH"),
    ("user", "DELETE"),
}
PUBLIC = {("schema", "GET"), ("docs", "GET")}  # without a key as well
CASES = OWNED | SEGMENTS | REVIEW | LISTS | MAKING | SHARED | WEBHOOKS | BATCHES | BOOKS | LEXICONS
CASES |= BOOK_FILES | BOOK_BATCHES
CASES |= ACCOUNTS | PUBLIC


def walk(patterns: list[Any], prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    """Yield the path of each route below some patterns."""
    for pattern in patterns:
        path = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from walk(pattern.url_patterns, path)
        else:
            yield path, pattern


def api_routes() -> set[Route]:
    """Return name and method of each route below /api/; a plain function counts as `ANY`."""
    routes: set[Route] = set()
    for path, pattern in walk(get_resolver().url_patterns):
        if not path.startswith("api/"):
            continue
        view: Any = getattr(pattern.callback, "view_class", None)
        methods = [name for name in getattr(view, "http_method_names", []) if hasattr(view, name)]
        names = {name.upper() for name in methods} - {"OPTIONS", "HEAD"} or {"ANY"}
        routes |= {(pattern.name or path, name) for name in names}
    return routes


@dataclass(frozen=True)
class Tenants:
    """Two users; the first has jobs in several states."""

    first: APIClient
    second: APIClient
    jobs: tuple[RenderJob, ...]
    voice: Voice

    def rows(self) -> list[Any]:
        """Return all that is stored of the jobs."""
        tables: list[Any] = [RenderJob.objects, Segment.objects, Export.objects]
        return [list(table.order_by("pk").values()) for table in tables]


@pytest.fixture
def tenants(job_services: None, client_of: Callable[[User], APIClient]) -> Tenants:
    """Two users, one with jobs."""
    first, voice = make_user("first"), make_voice("Ada")
    status = RenderJob.Status
    jobs = (
        make_job(owner=first, voice=voice, text=SECRET, idempotency_key=KEY),
        make_job(owner=first, voice=voice, text=SECRET, status=status.RUNNING),
        make_ended_job(first, voice=voice, text=SECRET),
        make_job(owner=first, voice=voice, text=SECRET, status=status.FAILED, segments_failed=1),
    )
    return Tenants(client_of(first), client_of(make_user("second")), jobs, voice)


def test_every_route_has_a_case_and_every_case_a_route() -> None:
    groups = [OWNED, SEGMENTS, REVIEW, LISTS, MAKING, SHARED, WEBHOOKS, BATCHES, BOOKS, LEXICONS]
    groups += [ACCOUNTS, PUBLIC, BOOK_FILES, BOOK_BATCHES]

    assert api_routes() == CASES
    assert sum(map(len, groups)) == len(CASES)


@pytest.mark.parametrize("route", sorted(OWNED))
def test_job_of_another_user_does_not_exist(route: Route, tenants: Tenants) -> None:
    name, method = route
    before = tenants.rows()

    for job in tenants.jobs:
        path = reverse(name, args=[job.pk])
        methods = [method, "HEAD"] if method == "GET" else [method]
        answers = [tenants.second.generic(method, path) for method in methods]

        assert [answer.status_code for answer in answers] == [404] * len(methods), job.status
        assert answers[0].json()["code"] == "job_not_found"
    assert tenants.rows() == before


@pytest.mark.parametrize("route", sorted(OWNED))
def test_what_another_user_is_refused_its_owner_gets(route: Route, tenants: Tenants) -> None:
    name, method = route
    answers = [tenants.first.generic(method, reverse(name, args=[j.pk])) for j in tenants.jobs]

    assert any(answer.status_code < 300 for answer in answers)


@pytest.mark.parametrize("route", sorted(LISTS))
def test_list_holds_nothing_of_another_user_whatever_the_filter(
    route: Route, tenants: Tenants
) -> None:
    path = reverse(route[0])
    own = tenants.first.get(path, {"limit": 2}).json()
    assert len(own["results"]) == 2
    cursor = own["next"].split("cursor=")[1].split("&")[0]
    ids = ",".join(str(job.pk) for job in tenants.jobs)

    for query in (
        "",
        f"ids={ids}",
        "voice=Ada",
        f"voice={tenants.voice.pk}",
        "status=queued,running,succeeded,failed",
        f"cursor={cursor}&limit=2",
    ):
        answer = tenants.second.get(f"{path}?{query}")
        assert (answer.status_code, answer.json()["results"]) == (200, []), query


@pytest.mark.parametrize("route", sorted(MAKING))
def test_same_idempotency_key_of_another_user_makes_a_job_of_his_own(
    route: Route, tenants: Tenants
) -> None:
    answer = tenants.second.post(
        reverse(route[0]),
        {"text": "Something else.", "voice": "Ada"},
        headers={"Idempotency-Key": KEY},
    )

    assert answer.status_code == 202
    assert answer.json()["id"] not in {str(job.pk) for job in tenants.jobs}
    assert SECRET not in answer.content.decode()


@pytest.mark.parametrize("route", sorted(route for route in SHARED if route[1] == "GET"))
def test_what_all_users_share_tells_nothing_of_ones_jobs(route: Route, tenants: Tenants) -> None:
    needs_voice = route[0] not in ("voices", "stats", "overview")

    answer = tenants.second.get(reverse(route[0], args=[tenants.voice.pk] if needs_voice else []))

    text = "" if answer.streaming else json.dumps(answer.json())
    assert SECRET not in text
    assert not [job for job in tenants.jobs if str(job.pk) in text]


@pytest.mark.parametrize(
    "route", sorted(CASES - PUBLIC - REVIEW - WEBHOOKS - BATCHES - BOOKS - LEXICONS - BOOK_FILES)
)
def test_nothing_is_there_without_a_key(route: Route, tenants: Tenants) -> None:
    name, method = route
    things: dict[str, Any] = {"job": tenants.jobs[0].pk, "voice": tenants.voice.pk}
    things |= {"key": uuid.uuid4(), "user": 1, "group": 1}
    kind = name.split("-")[0]
    before = tenants.rows()

    arguments = [things[kind]] if kind in things else []
    if route in BOOK_BATCHES and name != "book-batches":
        arguments = [uuid.uuid4()]
    if route in SEGMENTS:
        arguments.append(tenants.jobs[0].segments.get().pk)
    answer = APIClient().generic(method, reverse(name, args=arguments))

    assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")
    assert tenants.rows() == before
