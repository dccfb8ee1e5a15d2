"""Plant defects that a careless service would have, to see that the checks find them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db.models import F, QuerySet

from lab.torture.load import SUCCEEDED, Accepted
from synth.models import Export, RenderJob
from ttsweb.commands.base import StepError
from ttsweb.storage import MadeFile


def plant(names: Sequence[str], accepted: Sequence[Accepted]) -> None:
    """Do one defect after the other, each to a file, or its job, of its own.

    Raises:
        StepError: torture_failed, when fewer jobs than that have ended.
    """
    jobs = [one.pk for one in accepted if one.kind == "job" and one.ends == (SUCCEEDED,)]
    done = Export.objects.filter(job__in=jobs, status=Export.Status.DONE, format="flac")
    files = list(done.order_by("created_at"))
    if len(files) <= len(names):
        raise StepError("torture_failed", "Too few jobs have ended to plant defects in them.")
    for name, export in zip(names, files, strict=False):
        DEFECTS[name](export, files[-1])


def lose_job(export: Export, other: Export) -> None:
    _job_of(export).get().delete()


def forget_to_end(export: Export, other: Export) -> None:
    _job_of(export).update(status=RenderJob.Status.RUNNING)


def publish_wrong_file(export: Export, other: Export) -> None:
    """Name another job's file, which is whole and as long as the row says."""
    same = {name: getattr(other, name) for name in MadeFile("", 0, 0.0).columns}
    Export.objects.filter(pk=export.pk).update(**same)


def damage_file(export: Export, other: Export) -> None:
    with default_storage.open(export.key) as file:
        content = bytearray(file.read())
    content[len(content) // 2] ^= 0xFF
    default_storage.delete(export.key)
    default_storage.save(export.key, ContentFile(bytes(content)))


def count_twice(export: Export, other: Export) -> None:
    _job_of(export).update(segments_done=F("segments_done") + 1)


def _job_of(export: Export) -> QuerySet[RenderJob]:
    return RenderJob.objects.filter(exports=export)


DEFECTS: dict[str, Callable[[Export, Export], None]] = {
    "lost-job": lose_job,
    "endless-job": forget_to_end,
    "wrong-file": publish_wrong_file,
    "damaged-file": damage_file,
    "counted-twice": count_twice,
}
