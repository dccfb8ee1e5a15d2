"""Show the workers in the admin: who is there, in which state, with which model."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from unfold.admin import ModelAdmin
from unfold.decorators import display

from synth.models import WorkerStatus


@admin.register(WorkerStatus)
class WorkerStatusAdmin(ModelAdmin):
    """What the workers last said of themselves; nothing can be changed here."""

    list_display = ("name", "role", "state_label", "device", "checkpoint", "last_seen_at", "detail")
    fields = (
        "name", "role", "state_label", "detail", "device", "checkpoint", "model_fingerprint",
        "codec_fingerprint", "resampler", "measured", "started_at", "last_seen_at",
    )  # fmt: skip
    readonly_fields = fields

    @display(
        description="state",
        label={
            "starting": "info", "warming": "info", "ready": "success", "draining": "warning",
            "failed": "danger",
        },
    )  # fmt: skip
    def state_label(self, worker: WorkerStatus) -> str:
        """Return the state as a badge."""
        return worker.state

    @display(description="figures")
    def measured(self, worker: WorkerStatus) -> str:
        """Return what the worker counted, in words."""
        told = (
            f"{name.replace('_', ' ').removesuffix(' bytes')} "
            f"{filesizeformat(value) if name.endswith('_bytes') else value}"
            for name, value in sorted(worker.figures.items())
        )
        return " · ".join(told) or "-"

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Let nobody."""
        return False

    has_change_permission = has_delete_permission = has_add_permission
