"""Books survive kills of the workers that read them: nothing is lost and nothing is kept twice."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from synth.models import BookSource
from tests.factories import make_user
from tests.workers.pairs import Pair, RunningWorker, new_voice, wait_for
from tests.workers.test_book_jobs import epub, upload, wait_read

pytestmark = pytest.mark.django_db(transaction=True)

FAULTY = "tests/workers/faulty_worker.py"
PATIENCE_SECONDS = 400.0  # a machine that runs all tests at once starts torch slowly
LEASE_SECONDS = 6.0
# Nothing but the number differs, so that every segment is a take of its own.
CHAPTERS = tuple(
    (title, "\n".join(f"Ox {10 * number + line}." for line in range(2)))
    for number, title in enumerate(("Oxen of the Plain", "Oxen of the Hill", "Oxen of the Sea"))
)


@pytest.fixture
def owner(pair: Pair) -> User:
    """A user of the pair's database."""
    return make_user("owner")


def start(pair: Pair, role: str, **options: Any) -> RunningWorker:
    """Start a worker whose segments do not depend on each other in one bit.

    Its lease is longer than that of other tests: the strict way takes more time for each frame.
    """
    clocks = {"TTS_LEASE_SECONDS": LEASE_SECONDS, "TTS_ENGINE_STRICT": 1}
    return pair.start_worker(role=role, **(clocks | options))


def objects(pair: Pair, folder: str) -> list[str]:
    """Return the keys of a folder's objects; what is still being written is none."""
    storage = pair.data_dir / "storage"
    paths = [path for path in (storage / folder).rglob("*") if path.is_file()]
    return [str(path.relative_to(storage)) for path in paths if path.suffix != ".part"]


@pytest.mark.parametrize("pair", ["files"], indirect=True)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_worker_killed_around_the_storing_of_a_book_reads_it_again_once(
    pair: Pair, owner: User, moment: str
) -> None:
    new_voice("Ada")
    (pair.data_dir / "die-storing").write_text(moment)
    first = start(pair, "cpu", entry=FAULTY, TTS_TEST_FAULT="storing")
    book = upload(owner, epub(*CHAPTERS))
    wait_for(lambda: first.popen.poll() is not None, what="it has died", seconds=PATIENCE_SECONDS)
    assert BookSource.objects.get(pk=book.pk).state == BookSource.State.IMPORTING

    start(pair, "cpu")
    wait_read(book)

    assert (book.state, book.title, book.attempts) == ("planned", "Cattle", 2)
    assert book.figures["included"] == len(CHAPTERS)
    left = set(objects(pair, "books")) - {book.object_key, book.book_key}
    assert len(left) == (1 if moment == "after" else 0)  # no row names it: it ages out
