"""Batches of books for tests, and books as workers would have planned them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from synth.batches.turns import advance_batch
from synth.models import Batch, BatchEntry, BookSource
from tests.factories import make_voice
from tests.synth.books_api.shelf import store_book

MakeBatch = Callable[..., Batch]


@pytest.fixture
def ada(job_services: None) -> None:
    """A voice that everybody may use."""
    make_voice("Ada", shared=True)


@pytest.fixture
def batch_of(ada: None, operator: User) -> MakeBatch:
    """A function that makes a closed batch of so many planned books."""

    def make(books: int = 3, *, is_closed: bool = True, **fields: Any) -> Batch:
        batch = Batch.objects.create(
            kind="books", owner=operator, defaults={"voice": "Ada", "format": "wav"}, **fields
        )
        for index in range(books):
            BatchEntry.objects.create(
                batch=batch,
                index=index,
                filename=f"{index}.epub",
                book=store_book(operator, filename=f"{index}.epub"),
            )
        if is_closed:
            Batch.objects.filter(pk=batch.pk).update(closed_at=batch.created_at)
        batch.refresh_from_db()
        return batch

    return make


def books_of(batch: Batch) -> list[BookSource]:
    """Return the books of a batch as they are now, in its order."""
    books = BookSource.objects.filter(batch_entry__batch=batch)
    return list(books.select_related("job", "sample_job").order_by("batch_entry__index"))


def go_on(batch: Batch) -> None:
    """Do what sweeps would do until nothing more is to be done."""
    while advance_batch(batch.pk):
        pass
