"""Sum the bytes that rows say are stored: of one user, or of all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Model, Q, QuerySet, Sum

from synth.models import BookFile, BookSource, Export, Take
from voices.models import StoredClip

# What a user is answerable for. Takes are not among them: they are kept once for all who render
# the same, and go with the last job that uses them.
OWN_KINDS = ("clips", "exports", "book_files", "books")
_WORDS = {
    "clips": "clips",
    "exports": "files of jobs and batches",
    "book_files": "files of books",
    "books": "uploaded books",
}


def installation_bytes() -> dict[str, int]:
    """Return what is stored of all users, by kind, with the `total`."""
    models: dict[str, type[Model]] = {
        "exports": Export,
        "book_files": BookFile,
        "books": BookSource,
        "takes": Take,
        "clips": StoredClip,
    }
    rows: dict[str, QuerySet[Any]]
    rows = {name: model._default_manager.all() for name, model in models.items()}
    return _summed(rows | {"clips": StoredClip.objects.exclude(original_key="")})


def bytes_of_user(user_id: int, *, also_voice: Any = None) -> dict[str, int]:
    """Return what is stored of one user, by OWN_KINDS, with the `total`; four queries.

    Clips count once each, those of all versions of the user's voices and those that came with the
    user's jobs; files and books count that are the user's.

    Args:
        also_voice: id of a voice whose clips count too, whoever it belongs to.
    """
    own_voice = Q(uses__version__voice__deleted_at__isnull=True)
    own_voice &= Q(uses__version__voice__owner_id=user_id)
    if also_voice is not None:
        own_voice |= Q(uses__version__voice=also_voice)
    own_job = Q(uses__version__pinned_by__job__owner_id=user_id, uses__version__voice=None)
    # Two subqueries: one condition over both joins would look at every use of every clip.
    voices = StoredClip.objects.filter(own_voice).values("pk")
    jobs = StoredClip.objects.filter(own_job).values("pk")
    return _summed(
        {
            "clips": StoredClip.objects.filter(Q(pk__in=voices) | Q(pk__in=jobs)).exclude(
                original_key=""  # only its codes are left
            ),
            "exports": Export.objects.filter(owned_by(user_id)),
            "book_files": BookFile.objects.filter(job__owner_id=user_id),
            "books": BookSource.objects.filter(owner_id=user_id),
        }
    )


def owned_by(user_id: int) -> Q:
    """Return the condition of exports of a user's jobs and batches."""
    return Q(job__owner_id=user_id) | Q(batch__owner_id=user_id)


def in_words(stored: Mapping[str, int]) -> str:
    """Return in words what makes the bytes of a user."""
    parts = [f"{stored[kind]} of {_WORDS[kind]}" for kind in OWN_KINDS if stored[kind]]
    return ", ".join(parts) or "nothing"


def _summed(rows: Mapping[str, QuerySet[Any]]) -> dict[str, int]:
    found = {
        name: int(some.order_by().aggregate(size=Sum("size_bytes"))["size"] or 0)
        for name, some in rows.items()
    }
    return found | {"total": sum(found.values())}
