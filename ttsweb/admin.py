"""Manage accounts in the admin: users, groups and API keys."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.forms import BaseModelForm, ModelForm, MultipleChoiceField
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from synth.accounts.access import ScopeError, check_scopes, create_key, revoke_key
from synth.accounts.sign_in import reset_second_factor
from synth.models import ApiKey, AuditEntry, default_scopes
from ttsweb.pages.admin_base import NounAdmin, column, row_action
from ttsweb.refusals import counted
from ttsweb.rights import LIMITS, OWN_RIGHTS

_LINK = " relationship"  # Django's word for such a row: "user-group relationship"

admin.site.unregister(User)
admin.site.unregister(Group)


class WithoutLinksMixin:
    """Tell what is deleted without the rows that only link two others: they have no names."""

    def get_deleted_objects(
        self, objs: Any, request: HttpRequest
    ) -> tuple[list[Any], dict[str, int], set[str], list[str]]:
        listed, counts, missing, kept = super().get_deleted_objects(objs, request)  # type: ignore[misc]  # a mixin
        counts = {name: count for name, count in counts.items() if _LINK not in name}
        return _without_links(listed), counts, missing, kept


def _may_change(request: HttpRequest, user: User | None) -> bool:
    """Say whether one may change this user: who sets a superuser's password is one."""
    return bool(request.user.is_superuser) or user is None or not user.is_superuser


@admin.register(User)
class UserAdmin(WithoutLinksMixin, DjangoUserAdmin, ModelAdmin):  # type: ignore[type-arg]  # takes none at run time
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    filter_horizontal = ()  # Django's two lists side by side are not for a screen reader or a phone
    actions = ("reset_second_factors",)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and _may_change(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Say whether one may; nobody deletes oneself, so that somebody keeps the rights."""
        is_other = obj is None or obj.pk != request.user.pk
        return (
            is_other and super().has_delete_permission(request, obj) and _may_change(request, obj)
        )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Superusers give rights, as over the API, and take none of their own away."""
        fields = tuple(map(str, super().get_readonly_fields(request, obj)))
        if not request.user.is_superuser:
            fields += ("is_superuser", "groups", "user_permissions")
        if obj is not None and obj.pk == request.user.pk:
            fields += OWN_RIGHTS
        return tuple(dict.fromkeys(fields))

    @admin.action(description="Reset the second step of the log-in", permissions=["change"])
    def reset_second_factors(self, request: HttpRequest, users: QuerySet[User]) -> None:
        """Let users log in by password alone, such as who has lost the phone."""
        if not request.user.is_superuser:
            users = users.filter(is_superuser=False)
        count = sum(map(reset_second_factor, users))
        sentence = f"{counted(count, 'user')}: the log-in asks for the password alone."
        self.message_user(request, sentence)


@admin.register(Group)
class GroupAdmin(WithoutLinksMixin, DjangoGroupAdmin, ModelAdmin):
    filter_horizontal = ()


class ApiKeyForm(ModelForm):  # type: ignore[type-arg]  # takes none at run time
    scopes = MultipleChoiceField(
        choices=ApiKey.Scope.choices,
        initial=default_scopes,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text="What the key may do. A key can never do more than its user.",
    )

    class Meta:
        model = ApiKey
        fields = ("name", "user", "expires_at", "scopes", *LIMITS)
        help_texts = {"expires_at": "In UTC. Empty: the key does not expire."}  # noqa: RUF012  # Django reads it

    def clean_scopes(self) -> list[str]:
        """Return scopes that the key may have; the field of the user comes first."""
        chosen: list[str] = self.cleaned_data["scopes"]
        user = self.cleaned_data.get("user") or getattr(self.instance, "user", None)
        try:
            check_scopes(chosen, user)
        except ScopeError as error:
            raise ValidationError(str(error)) from error
        return chosen


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    is_over = key.expires_at is not None and key.expires_at <= timezone.now()
    return "expired" if is_over else "active"


@admin.register(ApiKey)
class ApiKeyAdmin(NounAdmin):
    """API keys: a new one is shown once, an old one can be revoked or deleted."""

    form = ApiKeyForm
    allowed = ("view", "add", "change", "delete")
    list_display = (
        "name", "user", "prefix", "state", "may", "last_used_at", "expires_at", "created_at",
    )  # fmt: skip
    list_select_related = ("user",)
    search_fields = ("name", "prefix", "user__username")
    actions = (row_action("revoke", "Revoke", "revoked", revoke_key),)

    state = column(
        "state", _state, None, {"active": "success", "revoked": "danger", "expired": "warning"}
    )
    may = column("may", lambda key: ", ".join(key.scopes) or "nothing")

    def get_queryset(self, request: HttpRequest) -> QuerySet[ApiKey]:
        """Return the keys that the user may manage: one's own, a superuser all."""
        keys = super().get_queryset(request)
        return keys if request.user.is_superuser else keys.filter(user=request.user.pk)

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Offer only oneself to those who are no superuser: a key has all rights of its user."""
        if db_field.name == "user" and not request.user.is_superuser:
            kwargs["queryset"] = User.objects.filter(username=request.user.get_username())
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> tuple[str, ...]:
        """Return what a new key is asked for, or all that is known of one; never the digest."""
        asked = ("name", "user", "expires_at", "scopes", *LIMITS)
        known = ("prefix", "state", "created_at", "last_used_at", "revoked_at")
        return asked if obj is None else asked + known

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> Any:
        """Let a key's name, expiry, scopes and limits be changed; whose key it is stays."""
        if obj is None:
            return ()
        return ("user", "prefix", "state", "created_at", "last_used_at", "revoked_at")

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        return {"user": request.user.pk, **super().get_changeform_initial_data(request)}

    def save_model(
        self, request: HttpRequest, obj: ApiKey, form: BaseModelForm[ApiKey], change: bool
    ) -> None:
        """Make a key and show it this once, or save what was changed of it."""
        if change:
            obj.save(update_fields=form.changed_data)
            return
        row, key = create_key(
            obj.user,
            obj.name,
            obj.expires_at,
            scopes=obj.scopes,
            limits={limit: getattr(obj, limit) for limit in LIMITS},
        )
        obj.pk, obj.prefix = row.pk, row.prefix
        text = format_html(
            "Copy the new key now; it is not shown again: <code>{}</code> <button "
            'type="button" class="tts-button tts-small" data-copy="{}">Copy the key</button>',
            key,
            key,
        )
        self.message_user(request, text, messages.WARNING)


@admin.register(AuditEntry)
class AuditEntryAdmin(NounAdmin):
    """Who changed what; nothing can be changed here."""

    list_display = (
        "created_at", "username", "key_prefix", "method", "route", "shown_ids", "address", "result",
    )  # fmt: skip
    list_filter = ("method", "status")
    list_per_page = 50
    show_full_result_count = False
    date_hierarchy = "created_at"
    search_fields = ("username", "key_prefix", "route", "address")
    search_help_text = "User, key, route or address"
    fields = (
        "created_at",
        ("username", "key_prefix"),
        ("method", "route"),
        "shown_ids",
        "address",
        "result",
    )

    shown_ids = column(
        "ids", lambda row: ", ".join(f"{name} {one}" for name, one in row.ids.items()) or "-"
    )
    result = column("status", lambda row: result_of(row), "status")


_TRIES = {"sign-in": "password", "sign-in-code": "code"}  # what is asked for, by the route


def result_of(entry: AuditEntry) -> str:
    """Return the status of an entry and, of a try to sign in, what it means."""
    asked = _TRIES.get(entry.route)
    words = {200: "refused", 302: f"{asked} right", 429: "locked out"}
    return f"{entry.status} {words.get(entry.status, '') if asked else ''}".strip()


def _without_links(listed: list[Any]) -> list[Any]:
    rest = (one for one in listed if isinstance(one, list) or f"{_LINK}:" not in str(one))
    cleaned = [_without_links(one) if isinstance(one, list) else one for one in rest]
    return [one for one in cleaned if one != []]
