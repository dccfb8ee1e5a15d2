"""Manage webhooks in the admin, and look at workers and at segments to review."""

from __future__ import annotations

import uuid
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.forms import ModelForm, MultipleChoiceField, ValidationError
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.urls import path, reverse
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from synth.admin.jobs import link_to
from synth.models import (
    RenderJob,
    Segment,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookSecret,
    WorkerStatus,
)
from synth.models.accounts import all_events
from synth.review import FLAGS, groups_of
from synth.transitions.webhooks import resend_delivery
from synth.webhooks import (
    TooManyEndpointsError,
    change_endpoint,
    check_webhook_url,
    create_endpoint,
    delete_endpoint,
    previous_until,
    rotate_secret,
    secret_of,
    tell_test,
)
from ttsweb.encryption import SecretUnreadableError
from ttsweb.pages.admin_base import NounAdmin, column, page_action, row_action
from ttsweb.refusals import SubmitRejectedError

_ANY_JOB = uuid.UUID(int=0)
KEYS = (
    ("j, k", "next segment, previous segment"),
    ("Space", "play the segment in context, or stop"),
    ("Shift + 1 to 9", "listen to a take"),
    ("1 to 9", "choose a take"),
    ("a", "approve the chosen take"),
    ("r", "render the segment again with another seed"),
    ("e", "edit the spoken text; Ctrl + Enter renders it, Escape discards the change"),
    ("?", "show or hide this help"),
)


class OwnRowsAdmin(NounAdmin):
    """Rows of which a user sees the own ones, and a superuser all."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request).select_related("owner")
        return rows if request.user.is_superuser else rows.filter(owner=request.user.pk)


def _job_link(row: WebhookDelivery) -> str | SafeString:
    page = "renderjob" if row.job_id else "textbatch"
    return "-" if row.about is None else link_to(page, row.about, row.about)


_resend = row_action(
    "resend_chosen",
    "Send again",
    "queued to be sent again",
    lambda row: resend_delivery(row.pk),
    same="not sent again, as the message is being sent right now",
)


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(OwnRowsAdmin):
    """What was sent to webhooks, or is to be; it can be sent again."""

    list_display = (
        "event", "url", "state", "attempts", "answer", "next_try", "owner", "created_at",
    )  # fmt: skip
    list_filter = ("status", "event")
    list_per_page = 50
    show_full_result_count = False
    search_fields = ("id", "url", "job__id", "batch__id", "owner__username")
    actions = (_resend,)
    actions_detail = ("resend_this",)
    fields = (
        ("event", "state", "attempts"), "url", "answer", "error_message", "next_try",
        ("owner", "job_link"), ("created_at", "finished_at", "give_up_at"), "id", "body",
    )  # fmt: skip

    # The status of the last answer, or why there was none.
    answer = column(
        "answer",
        lambda row: " ".join(filter(None, (str(row.response_status or ""), row.error_code))) or "-",
    )
    next_try = column(
        "next attempt",
        lambda row: row.not_before if row.status == WebhookDelivery.Status.QUEUED else None,
        "not_before",
    )
    job_link = column("job", _job_link)

    state = column(
        "status", lambda row: row.status, "status",
        {"queued": "info", "claimed": "warning", "delivered": "success", "failed": "danger"},
    )  # fmt: skip
    resend_this = page_action(
        "resend_this", "Send again", "Send this message again",
        "The message keeps its id, so the receiver can recognise it.",
        lambda page, request, pk: _resend(page, request, page.get_queryset(request).filter(pk=pk)),
    )  # fmt: skip


class EndpointForm(ModelForm):  # type: ignore[type-arg]  # takes none at run time
    """An endpoint with its events as boxes to tick."""

    events = MultipleChoiceField(
        choices=WebhookDelivery.Event.choices,
        initial=all_events,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
    )

    class Meta:
        model = WebhookEndpoint
        fields = ("url", "events", "enabled")
        labels = {"url": "URL"}  # noqa: RUF012  # Django reads it

    def clean_url(self) -> str:
        url: str = self.cleaned_data["url"]
        try:
            check_webhook_url(url)
        except SubmitRejectedError as error:
            raise ValidationError(str(error), code=error.code) from error
        return url


@admin.register(WebhookEndpoint)
class WebhookEndpointAdmin(OwnRowsAdmin):
    """URLs that get the events of all jobs of their owner."""

    allowed = ("view", "add", "change", "delete")
    deletes = staticmethod(delete_endpoint)  # what waits for it is not sent
    save_refusals = (TooManyEndpointsError,)
    form = EndpointForm
    list_display = ("url", "wants", "enabled", "owner", "created_at")
    list_filter = ("enabled",)
    actions = (
        row_action(
            "test_chosen", "Send a test",
            "a test is sent; “Webhook deliveries” shows the answer", tell_test,
        ),
    )  # fmt: skip
    fields = ("url", "events", "enabled")

    wants = column(
        "events",
        lambda row: "all" if set(row.events) >= set(all_events()) else ", ".join(row.events),
    )

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Save as the API does: a new one is the user's own."""
        values = {name: form.cleaned_data[name] for name in ("url", "events", "enabled")}
        if change:
            change_endpoint(WebhookEndpoint.objects.get(pk=obj.pk), values)
            return
        obj.owner_id = request.user.pk
        obj.pk = create_endpoint(obj.owner, values).pk


def _secret(row: WebhookSecret) -> str:
    try:
        return row.secret
    except SecretUnreadableError as error:
        return str(error)


@admin.register(WebhookSecret)
class WebhookSecretAdmin(NounAdmin):
    """The secret that signs one's messages, shown to its user alone."""

    list_display = ("user", "rotated_at", "previous_until")
    fields = ("user", "shown_secret", "rotated_at", "previous_until")
    actions_detail = ("rotate_this",)

    shown_secret = column("secret", _secret)
    previous_until = column("previous secret valid until", previous_until)
    rotate_this = page_action(
        "rotate_this", "Rotate", "Make a new secret",
        "For 24 hours, messages are also signed with the previous secret.",
        lambda page, request, pk: rotate_secret(page.get_object(request, pk).user), right="view",
    )  # fmt: skip

    def get_queryset(self, request: HttpRequest) -> QuerySet[WebhookSecret]:
        """Return one's own secret; it is made when it is first looked for."""
        secret_of(request.user)  # type: ignore[arg-type]  # logged in
        rows: QuerySet[WebhookSecret] = super().get_queryset(request)
        return rows.filter(user=request.user.pk)


def _figures(worker: WorkerStatus) -> str:
    shown = (
        f"{name.replace('_', ' ').removesuffix(' bytes')} "
        f"{filesizeformat(value) if name.endswith('_bytes') else value}"
        for name, value in sorted(worker.figures.items())
    )
    return " · ".join(shown) or "-"


@admin.register(WorkerStatus)
class WorkerStatusAdmin(NounAdmin):
    """What the workers last said of themselves; nothing can be changed here."""

    list_display = (
        "name", "role", "state_label", "reached", "device", "checkpoint", "last_seen_at", "detail",
    )  # fmt: skip
    fields = (
        "name", "role", "state_label", "reached", "detail", "device", "checkpoint",
        "model_fingerprint", "codec_fingerprint", "resampler", "measured", "started_at",
        "last_seen_at",
    )  # fmt: skip

    measured = column("figures", _figures)
    reached = column(
        "reached", lambda worker: "over HTTPS" if worker.is_elsewhere else "at the site"
    )

    state_label = column(
        "state", lambda worker: worker.state, None,
        {"starting": "info", "warming": "info", "ready": "success", "unloaded": "success",
         "draining": "warning",
         "failed": "danger"},
    )  # fmt: skip


@admin.register(Segment)
class ReviewAdmin(NounAdmin):
    """The segments that need somebody's ears, worst first; they have no pages of their own."""

    rights_of = RenderJob

    def get_urls(self) -> list[Any]:
        """Return the one page; jobs show their segments themselves."""
        page = self.admin_site.admin_view(self.changelist_view)
        return [path("", page, name="synth_segment_changelist")]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        job_page = reverse("admin:synth_renderjob_change", args=[_ANY_JOB])
        context = {
            "opts": None,  # the page is called by its title, and not by the model
            "flags": list(FLAGS),
            "keys": KEYS,
            "review_url": reverse("review"),
            "groups": groups_of(request.user),
            "may_control": self.has_control_permission(request),
            "approve_url": reverse("review-approve-all"),
            "job_page": job_page.replace(str(_ANY_JOB), "{job}"),
        }
        return self.render_page(request, "synth/review.html", "Review", context)
