"""Show webhooks in the admin: what was sent, the endpoints, and one's secret."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.forms import ModelForm, MultipleChoiceField, ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.decorators import action, display
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from synth.models import WebhookDelivery, WebhookEndpoint, WebhookSecret
from synth.models.webhooks import all_events
from synth.transitions import resend_delivery
from synth.webhooks.endpoints import (
    TooManyEndpointsError,
    change_endpoint,
    create_endpoint,
    delete_endpoint,
)
from synth.webhooks.events import tell_test
from synth.webhooks.signing import previous_until, rotate_secret, secret_of
from synth.webhooks.urls import WebhookUrlError, check_webhook_url
from ttsweb.encryption import SecretUnreadableError


class OwnRowsMixin:
    """Show a user what is the user's, and a superuser what is anybody's."""

    owner_field = "owner"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the rows that the user may see."""
        rows: QuerySet[Any] = super().get_queryset(request)  # type: ignore[misc]  # a mixin
        if request.user.is_superuser:
            return rows.select_related(self.owner_field)
        return rows.filter(**{self.owner_field: request.user.pk})


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(OwnRowsMixin, ModelAdmin):
    """What was sent to webhooks, or is to be; it can be sent again."""

    list_display = (
        "event", "url", "state", "attempts", "answer", "next_try", "owner", "created_at",
    )  # fmt: skip
    list_filter = ("status", "event")
    list_per_page = 50
    show_full_result_count = False
    search_fields = ("id", "url", "job__id", "owner__username")
    actions = ("resend_chosen",)
    actions_detail = ("resend_this",)
    fields = (
        ("event", "state", "attempts"), "url", "answer", "error_message", "next_try",
        ("owner", "job_link"), ("created_at", "finished_at", "give_up_at"), "id", "body",
    )  # fmt: skip
    readonly_fields = (
        "event", "state", "attempts", "url", "answer", "error_message", "next_try", "owner",
        "job_link", "created_at", "finished_at", "give_up_at", "id", "body",
    )  # fmt: skip

    @display(
        description="status",
        label={"queued": "info", "claimed": "warning", "delivered": "success", "failed": "danger"},
        ordering="status",
    )
    def state(self, row: WebhookDelivery) -> str:
        """Return the status as a badge."""
        return row.status

    @display(description="answer")
    def answer(self, row: WebhookDelivery) -> str:
        """Return the status of the last answer, or why there was none."""
        found = [str(row.response_status or ""), row.error_code]
        return " ".join(filter(None, found)) or "-"

    @display(description="next attempt", ordering="not_before")
    def next_try(self, row: WebhookDelivery) -> dt.datetime | None:
        """Return from when on it is tried again; nothing where it is not."""
        return row.not_before if row.status == WebhookDelivery.Status.QUEUED else None

    @display(description="job")
    def job_link(self, row: WebhookDelivery) -> str | SafeString:
        """Return a link to the job."""
        if row.job_id is None:
            return "-"
        url = reverse("admin:synth_renderjob_change", args=[row.job_id])
        return format_html('<a href="{}" class="tts-link">{}</a>', url, row.job_id)

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Let nobody: messages are made of what happens."""
        return False

    has_change_permission = has_delete_permission = has_add_permission

    def has_resend_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Let those send again who may change deliveries."""
        return bool(request.user.has_perm("synth.change_webhookdelivery"))

    @action(description="Send again", permissions=["resend"])
    def resend_chosen(self, request: HttpRequest, rows: QuerySet[WebhookDelivery]) -> None:
        """Send the chosen deliveries at once, whether they arrived or not."""
        keys = list(rows.values_list("pk", flat=True))
        moved = sum(resend_delivery(pk) for pk in keys)
        if moved:
            self.message_user(request, f"Deliveries to be sent again: {moved}.")
        if moved < len(keys):
            sentence = f"Not sent again, as they are being sent right now: {len(keys) - moved}."
            self.message_user(request, sentence, messages.WARNING)

    @action(
        description="Send again",
        permissions=["resend"],
        dialog={
            "title": "Send this message again",
            "description": "The message keeps its id, so the receiver can recognise it.",
            "form_submit_text": "Send",
        },
    )
    def resend_this(
        self, request: HttpRequest, form: BaseDialogForm, object_id: str
    ) -> HttpResponse:
        """Send the delivery of this page again."""
        self.resend_chosen(request, self.get_queryset(request).filter(pk=object_id))
        url = reverse("admin:synth_webhookdelivery_change", args=[object_id])
        return HttpResponse(headers={"HX-Redirect": url})


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
        """Refuse a URL to which nothing may be sent."""
        url: str = self.cleaned_data["url"]
        try:
            check_webhook_url(url)
        except WebhookUrlError as error:
            raise ValidationError(str(error), code=error.code) from error
        return url


@admin.register(WebhookEndpoint)
class WebhookEndpointAdmin(OwnRowsMixin, ModelAdmin):
    """URLs that get the events of all jobs of their owner."""

    form = EndpointForm
    list_display = ("url", "wants", "enabled", "owner", "created_at")
    list_filter = ("enabled",)
    actions = ("test_chosen",)
    fields = ("url", "events", "enabled")

    @display(description="events")
    def wants(self, row: WebhookEndpoint) -> str:
        """Return the events that it gets."""
        return "all" if set(row.events) >= set(all_events()) else ", ".join(row.events)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Save as the API does: a new one is the user's own."""
        values = {name: form.cleaned_data[name] for name in ("url", "events", "enabled")}
        if change:
            change_endpoint(WebhookEndpoint.objects.get(pk=obj.pk), values)
            return
        obj.owner_id = request.user.pk
        obj.pk = create_endpoint(obj.owner, values).pk

    def add_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Show the form; where there are too many, say so."""
        try:
            return super().add_view(request, *args, **kwargs)
        except TooManyEndpointsError as error:
            self.message_user(request, str(error), messages.ERROR)
            return HttpResponseRedirect(reverse("admin:synth_webhookendpoint_changelist"))

    def delete_model(self, request: HttpRequest, obj: WebhookEndpoint) -> None:
        """Delete an endpoint; what waits for it is not sent."""
        delete_endpoint(obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[WebhookEndpoint]) -> None:
        """Delete the chosen endpoints, each in the same way."""
        for endpoint in queryset:
            delete_endpoint(endpoint)

    @action(description="Send a test", permissions=["change"])
    def test_chosen(self, request: HttpRequest, rows: QuerySet[WebhookEndpoint]) -> None:
        """Send the event `test` to the chosen endpoints."""
        for endpoint in rows:
            tell_test(endpoint)
        self.message_user(
            request, f"Tests sent: {len(rows)}. “Webhook deliveries” shows the answers."
        )


@admin.register(WebhookSecret)
class WebhookSecretAdmin(ModelAdmin):
    """The secret that signs one's messages, shown to its user alone."""

    list_display = ("user", "rotated_at", "previous_until")
    fields = ("user", "shown_secret", "rotated_at", "previous_until")
    readonly_fields = fields
    actions_detail = ("rotate_this",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[WebhookSecret]:
        """Return one's own secret; it is made when it is first looked for."""
        secret_of(request.user)  # type: ignore[arg-type]  # logged in
        rows: QuerySet[WebhookSecret] = super().get_queryset(request)
        return rows.filter(user=request.user.pk)

    @display(description="secret")
    def shown_secret(self, row: WebhookSecret) -> str:
        """Return the secret, or why it cannot be read."""
        try:
            return row.secret
        except SecretUnreadableError as error:
            return str(error)

    @display(description="previous secret valid until")
    def previous_until(self, row: WebhookSecret) -> dt.datetime | None:
        """Return when the previous secret ends; nothing where there is none."""
        return previous_until(row)

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Let nobody."""
        return False

    has_change_permission = has_delete_permission = has_add_permission

    @action(
        description="Rotate",
        permissions=["view"],
        dialog={
            "title": "Make a new secret",
            "description": "For 24 hours, messages are also signed with the previous secret.",
            "form_submit_text": "Rotate",
        },
    )
    def rotate_this(
        self, request: HttpRequest, form: BaseDialogForm, object_id: str
    ) -> HttpResponse:
        """Give the user another secret."""
        row = rotate_secret(request.user)  # type: ignore[arg-type]  # logged in
        url = reverse("admin:synth_webhooksecret_change", args=[row.pk])
        return HttpResponse(headers={"HX-Redirect": url})
