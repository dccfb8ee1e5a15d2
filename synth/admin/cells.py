"""What the pages of jobs, batches and books share: states, live cells, buttons, actions on jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.contrib import admin
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString
from rest_framework import serializers

from synth.accounts.limits import KeyLimitError
from synth.jobs.retry import RetryRefusedError, retry
from synth.models import RenderJob
from synth.transitions.files import pause_job, resume_job
from synth.transitions.jobs import ChangeRefusedError, cancel_job, change_job
from ttsweb.pages.admin_base import NounAdmin, row_action
from ttsweb.refusals import SubmitRejectedError

REFUSALS = (
    SubmitRejectedError,
    KeyLimitError,
    RetryRefusedError,
    ChangeRefusedError,
    serializers.ValidationError,
)
# The colours of badges, which are named after the states of voices; any other state is blue.
COLOURS = {
    **dict.fromkeys(("succeeded", "done", "ended"), "ready"),
    **dict.fromkeys(("failed", "deleted"), "failed"),
    **dict.fromkeys(
        ("running", "claimed", "partial", "paused", "sampling", "sampled", "to_approve"), "encoding"
    ),
}
_LABELS = {"pause": "Pause", "resume": "Resume", "close": "Take no more files"}


class WorkAdmin(NounAdmin):
    """The page of a kind of work: a job, a batch, a book, a batch of books."""

    refusals = REFUSALS
    list_per_page = 50
    show_full_result_count = False
    noun = ""  # as the pages' scripts and the live parts call it
    cell_context: Callable[[Any], dict[str, Any]]  # what the cells and the state of a row show


def render_cell(noun: str, part: str, row: Any, context: dict[str, Any]) -> SafeString:
    """Return a part of `synth/cell.html`, which keeps itself up to date."""
    context = context | {"noun": noun, "part": part, "row": row}
    return SafeString(render_to_string("synth/cell.html", context).strip())


def live_cell(part: str, title: str = "", ordering: str | None = None) -> Any:
    """Return a column with a part of `synth/cell.html`."""

    @admin.display(description=title or part, ordering=ordering)
    def shown(page: WorkAdmin, row: Any) -> SafeString:
        return render_cell(page.noun, part, row, page.cell_context(row))

    return shown


def state_context(status: str, share: float, words: list[str], *, is_open: bool) -> dict[str, Any]:
    """Return what `synth/state.html` shows: badge, bar and words."""
    return {
        "status": status.replace("_", " "),
        "colour": COLOURS.get(status, "pending"),
        "progress": f"{share:.3f}",  # as text: a page in another language would write a comma
        "percent": round(100 * share),
        "words": " · ".join(words),
        "is_open": is_open,
    }


def buttons(
    view: str,
    row: Any,
    names: Iterable[str],
    noun: str,
    missing: str = "segments",
    kept: str = "Rendered audio is kept",
) -> list[dict[str, str]]:
    """Return the buttons of a page: what each says, where it posts to, and what it asks before.

    `view` begins the names of the API's addresses, `missing` is what a retry renders, and `kept`
    what stays of a `noun` that is stopped.
    """
    labels = _LABELS | {
        "approve": "Approve all samples",
        "cancel": f"Stop the {noun}",
        "retry": f"Retry missing {missing}",
    }
    question = f"Stop rendering this {noun}? {kept}, and Retry continues from there."
    return [
        {
            "name": name,
            "label": labels[name],
            "url": reverse(f"{view}-{name}", args=[row.pk]),
            "question": question if name == "cancel" else "",
            "yes": labels["cancel"],
        }
        for name in names
    ]


# What can be done with the jobs of chosen rows: label, outcome in words, and the work.
_ON_JOBS: dict[str, tuple[str, str, Callable[[RenderJob], Any]]] = {
    "pause_chosen": ("Pause", "paused", lambda job: pause_job(job.pk)),
    "resume_chosen": ("Resume", "resumed", lambda job: resume_job(job.pk)),
    "cancel_chosen": ("Cancel", "cancelled", lambda job: cancel_job(job.pk)),
    "retry_chosen": ("Retry", "queued again", retry),
    "make_interactive": (
        "Set interactive priority",
        "moved to interactive priority",
        lambda job: change_job(job.pk, {"priority": RenderJob.Priority.INTERACTIVE}),
    ),
    "make_bulk": (
        "Set bulk priority",
        "moved to bulk priority",
        lambda job: change_job(job.pk, {"priority": RenderJob.Priority.BULK}),
    ),
}


def job_actions(
    *names: str, job_of: Callable[[Any], RenderJob] = lambda row: row
) -> tuple[Callable[..., None], ...]:
    """Return actions on the jobs of rows, which `job_of` finds."""

    def made(name: str) -> Callable[..., None]:
        label, done, work = _ON_JOBS[name]
        return row_action(name, label, done, lambda row: work(job_of(row)))

    return tuple(map(made, names))
