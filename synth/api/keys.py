"""Serve API keys over REST: one's own; to a superuser with the scope `admin` those of all users.

Who sees the whole installation also reads here who changed what: the audit log.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.accounts.access import check_scopes, create_key, revoke_key, sees_installation
from synth.api.authentication import key_of
from synth.api.fields import NOT_BLANK, StrictNumberField, StrictTextField, string
from synth.models import ApiKey, AuditEntry, default_scopes
from ttsweb.http.api import ApiProblem, StrictSerializer
from ttsweb.http.fields import SelfDescribingField, ShownField
from ttsweb.http.nouns import ListView, Noun, get_row
from ttsweb.http.query_filters import Filter, id_filter, moment_filter, names_filter
from ttsweb.rights import LIMITS

_MOST = dict.fromkeys(LIMITS, 2**31 - 1) | {"max_stored_bytes": 2**63 - 1}
_WORDS = {"max_stored_bytes": "most stored bytes of clips, finished files and uploaded books"}
STATES = ("active", "expired", "revoked")


def _limit_field(name: str) -> StrictNumberField:
    words = _WORDS.get(name, ApiKey._meta.get_field(name).verbose_name)  # type: ignore[union-attr]
    return StrictNumberField(
        low=0,
        high=_MOST[name],
        whole=True,
        allow_null=True,
        required=False,
        help_text=f"Limit: {words}; null: no limit.",
    )


class ScopesField(SelfDescribingField, serializers.ListField):
    """A list of scopes; `worker` stands alone, which `check_scopes` sees to."""

    child = serializers.ChoiceField(choices=ApiKey.Scope.choices)

    def describe(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        others = "|".join(scope for scope in ApiKey.Scope.values if scope != ApiKey.Scope.WORKER)
        together = {"type": "string", "pattern": f"^({others})$"}
        alone = {"type": "string", "pattern": f"^{ApiKey.Scope.WORKER}$"}
        return {
            "type": "array",
            "items": auto_schema._map_serializer_field(self.child, direction),
            "minItems": self.min_length,
            "maxItems": self.max_length,
            "anyOf": [{"items": together}, {"items": alone}],
        }


class KeyUpdateSerializer(StrictSerializer):
    """Changes of a key; fields that are left out do not change."""

    name = StrictTextField(max_length=100, pattern=NOT_BLANK)
    scopes = ScopesField(
        required=False,
        min_length=1,
        max_length=20,
        help_text="What the key may do; not more than the key that creates it.",
    )
    expires_at = serializers.DateTimeField(
        required=False,
        allow_null=True,
        help_text="The time at which the key stops working; null: never.",
    )
    max_queued_chars = _limit_field("max_queued_chars")
    max_unfinished_jobs = _limit_field("max_unfinished_jobs")
    max_requests_per_minute = _limit_field("max_requests_per_minute")
    max_stored_bytes = _limit_field("max_stored_bytes")

    def validate_name(self, value: str) -> str:
        if not value.strip():
            raise serializers.ValidationError("Say what the key is for.", code="blank")
        return value.strip()

    def validate_scopes(self, value: list[str]) -> list[str]:
        return [scope for scope in ApiKey.Scope.values if scope in value]

    def validate_expires_at(self, value: Any) -> Any:
        if value is not None and value <= timezone.now():
            sentence = "This time is in the past; choose a later one."
            raise serializers.ValidationError(sentence, code="in_the_past")
        return value


class KeyCreateSerializer(KeyUpdateSerializer):
    """A key to create."""

    user = StrictTextField(
        max_length=150,
        required=False,
        help_text="Name of the user who gets the key. Only a superuser can name another user; a "
        "superuser's API key needs the scope `admin`.",
    )


def _state_of(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    is_over = key.expires_at is not None and key.expires_at <= timezone.now()
    return "expired" if is_over else "active"


class KeySerializer(serializers.ModelSerializer[ApiKey]):
    """A key, without its secret."""

    user = string(source="user.username")
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=ApiKey.Scope.choices))
    state = ShownField(_state_of, help_text=f"One of {', '.join(STATES)}.")

    class Meta:
        model = ApiKey
        fields = (
            "id", "name", "user", "prefix", "state", "scopes", *LIMITS, "created_at",
            "last_used_at", "expires_at", "revoked_at",
        )  # fmt: skip
        read_only_fields = fields


class NewKeySerializer(KeySerializer):
    """A new key with its secret, which cannot be read again."""

    key = string("The key itself. Store it now; it is not shown again.")

    class Meta(KeySerializer.Meta):
        fields = (*KeySerializer.Meta.fields, "key")
        read_only_fields = fields


# Whoever may only read makes no keys; what a new one may do is bounded by the one that asks.
_WRITE_SCOPES = (ApiKey.Scope.JOBS, ApiKey.Scope.VOICES, ApiKey.Scope.ADMIN)


def visible_keys(request: Request) -> QuerySet[ApiKey]:
    keys = ApiKey.objects.select_related("user")
    is_all = getattr(request.user, "is_superuser", False)
    return keys if is_all else keys.filter(user__pk=request.user.pk or 0)


def _find(request: Request, key_id: uuid.UUID) -> ApiKey:
    keys = visible_keys(request)
    return get_row(keys, "key_not_found", "No API key of yours has this id.", pk=key_id)


def _find_in_reach(request: Request, key_id: uuid.UUID) -> ApiKey:
    """Return a key that may do no more than the one that asks to change it.

    Raises:
        ApiProblem: 403 key_may_more.
    """
    row, own = _find(request, key_id), key_of(request)
    if own is not None and (more := _missing_of(request, own, row.scopes)):
        sentence = (
            f"That API key has scopes that yours lacks: {', '.join(more)}. Use a key that "
            "has them, or change the key in the admin."
        )
        raise ApiProblem(403, "key_may_more", sentence)
    return row


def _missing_of(request: Request, own: ApiKey, scopes: Collection[str]) -> list[str]:
    """Return those of some scopes that a key neither has nor gives.

    `worker` goes with no other scope, so that a superuser's `admin` stands for it.
    """
    stands_for = [ApiKey.Scope.WORKER] if getattr(request.user, "is_superuser", False) else []
    return [scope for scope in scopes if scope not in (*own.scopes, *stands_for)]


def _make(request: Request, asked: Mapping[str, Any]) -> ApiKey:
    wanted = dict(asked)
    user = _user_of(request, wanted.pop("user", None))
    own = key_of(request)
    if "scopes" not in wanted:
        has = default_scopes() if own is None else own.scopes
        wanted["scopes"] = [scope for scope in default_scopes() if scope in has]
    _check_no_more(request, wanted, is_new=True)
    row, key = create_key(
        user,
        wanted["name"],
        wanted.get("expires_at"),
        scopes=wanted["scopes"],
        limits={limit: wanted[limit] for limit in LIMITS if limit in wanted},
    )
    row.key = key  # type: ignore[attr-defined]  # for the answer alone; no column has it
    return row


def _change(request: Request, row: ApiKey, changes: Mapping[str, Any]) -> None:
    _check_no_more(request, changes, is_new=False)
    if "scopes" in changes:
        check_scopes(changes["scopes"], row.user)
    living = ApiKey.objects.filter(pk=row.pk, revoked_at__isnull=True)
    if not (living.update(**changes) if changes else living.exists()):
        raise ApiProblem(409, "key_revoked", "A revoked key cannot be changed; create another key.")


def _user_of(request: Request, name: str | None) -> User:
    """Return the user whose key is to be made.

    Raises:
        ApiProblem: 403 superuser_required, 404 user_not_found.
    """
    users = get_user_model().objects
    if name is None or name == request.user.get_username():
        return users.get(username=request.user.get_username())
    if not getattr(request.user, "is_superuser", False):
        sentence = (
            "Only a superuser creates keys for other users; a superuser's API key needs the "
            "scope 'admin'."
        )
        raise ApiProblem(403, "superuser_required", sentence, attr="user")
    user = users.filter(username=name, is_active=True).first()
    if user is None:
        sentence = "There is no active user with this name."
        raise ApiProblem(404, "user_not_found", sentence, attr="user")
    return user


def _check_no_more(request: Request, wanted: Mapping[str, Any], *, is_new: bool) -> None:
    """Refuse a key that would give its holder more than the one that asks for it.

    Raises:
        ApiProblem: 403 scope_not_yours, key_has_limits, expiry_not_yours.
    """
    own = key_of(request)
    if own is None:
        return
    if more := _missing_of(request, own, wanted.get("scopes", ())):
        sentence = (
            f"This API key lacks the scopes {', '.join(more)}, so it cannot give them to "
            "another key."
        )
        raise ApiProblem(403, "scope_not_yours", sentence, attr="scopes")
    # Each new key would have such a limit for itself, so that together they have none.
    has_limits = any(getattr(own, limit) is not None for limit in LIMITS)
    if has_limits and (is_new or any(limit in wanted for limit in LIMITS)):
        sentence = (
            "An API key with limits cannot create keys or change limits. Use a key without "
            "limits, or the admin."
        )
        raise ApiProblem(403, "key_has_limits", sentence)
    ends, end = own.expires_at, wanted.get("expires_at")
    if ends and (is_new or "expires_at" in wanted) and (end is None or end > ends):
        sentence = (
            f"This API key expires at {ends.isoformat()}; set `expires_at` to that time or earlier."
        )
        raise ApiProblem(403, "expiry_not_yours", sentence, attr="expires_at")


KEY = Noun("key", KeySerializer, _find)


class KeysView(ListView[ApiKey]):
    write_scopes = _WRITE_SCOPES
    lists = ("list_keys", "List keys, newest first, with revoked keys.")
    serializer_class = KeySerializer

    def rows(self) -> QuerySet[ApiKey]:
        return visible_keys(self.request)

    def finalize_response(self, request: Request, response: Response, **ids: Any) -> Response:
        """Keep the secret of a new key out of all caches."""
        if response.status_code == 201:
            response["Cache-Control"] = "no-store"
        return super().finalize_response(request, response, **ids)

    post = KEY.maker(
        "create_key",
        "Create a key; only this answer shows the secret.",
        _make,
        KeyCreateSerializer,
        *(403, 404),
        shown_by=NewKeySerializer,
    )


class KeyView(APIView):
    write_scopes = _WRITE_SCOPES

    get = KEY.getter("get_key", "Return a key without its secret.")
    patch = KEY.changer(
        "update_key",
        "Change a key's name, scopes, expiry or limits; they apply from its next request on.",
        _change,
        KeyUpdateSerializer,
        *(403, 409),
        find=_find_in_reach,
    )
    delete = KEY.deleter(
        "revoke_key",
        "Revoke a key.\n\nRequests with it are refused from now on. The list keeps it, to show "
        "when it was used.",
        revoke_key,
        403,
        find=_find_in_reach,
    )


_LONGEST = 150
METHODS = ("POST", "PUT", "PATCH", "DELETE", "GET")  # the last of a sign-in by a provider


@extend_schema_field(
    {
        "type": "object",
        "additionalProperties": {
            "oneOf": [
                {"type": "string"},
                {"type": "integer"},
                {"type": "array", "items": {"type": "string"}},
            ]
        },
    }
)
class IdsField(serializers.JSONField):
    """The ids that a request named, and that of what it made."""


class AuditSerializer(serializers.ModelSerializer[AuditEntry]):
    """One request that changed something, or tried to."""

    ids = IdsField(read_only=True, help_text="By name: `id` is what the request made.")

    class Meta:
        model = AuditEntry
        fields = (
            "id", "created_at", "user_id", "username", "key_id", "key_prefix", "method", "route",
            "ids", "address", "status",
        )  # fmt: skip
        read_only_fields = fields
        extra_kwargs = {  # noqa: RUF012  # DRF reads it
            "user_id": {"help_text": "Null for who was not signed in."},
            "username": {
                "help_text": "Of a try to sign in the account that was tried; `(unknown name)` "
                "where there is none of the name."
            },
            "route": {"help_text": "The name of the route, such as `jobs` or `admin:logout`."},
            "address": {"help_text": "Where the request came from, as far as the server knows."},
            "status": {
                "help_text": "The HTTP status of the answer; of a try to sign in 302 if it was "
                "right, 200 if not, 429 if it was refused after too many."
            },
        }


def _text_filter(help_text: str) -> Filter:
    schema = {"type": "string", "maxLength": _LONGEST}
    return Filter(_read_text, None, schema=schema, help_text=help_text)


def _read_text(text: str) -> str:
    if len(text) > _LONGEST:
        raise serializers.ValidationError(f"Expected at most {_LONGEST} characters.")
    if "\0" in text:  # which PostgreSQL does not take
        code = "null_characters_not_allowed"
        raise serializers.ValidationError("Expected a text without NUL characters.", code=code)
    return text


class AuditFilterSerializer(serializers.Serializer[Any]):
    """The filters of the log, as a condition on its entries."""

    username = _text_filter("Name of the user, exactly.")
    route = _text_filter("Name of the route, exactly.")
    key = id_filter("key", lambda key_id: Q(key_id=key_id))
    method = names_filter(METHODS, "One or more methods, separated by commas.")
    created_after = moment_filter("created_at__gt")
    created_before = moment_filter("created_at__lt")


class AuditView(ListView[AuditEntry]):
    lists = (
        "list_audit",
        "List requests that changed something, newest first; they are kept for 90 days.\n\nFor "
        "superusers, and staff who may view workers; a key needs the scope `admin`. Entries have "
        "no texts, names or bodies.",
        403,
    )
    serializer_class = AuditSerializer
    filters = AuditFilterSerializer

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Let nobody else in.

        Raises:
            ApiProblem: 403 installation_hidden.
        """
        super().initial(request, *args, **kwargs)
        if not sees_installation(request.user, key_of(request)):
            sentence = (
                "The audit log is for superusers, and for staff who may view workers; a key needs "
                "the scope `admin`."
            )
            raise ApiProblem(403, "installation_hidden", sentence)

    def rows(self) -> QuerySet[AuditEntry]:
        return AuditEntry.objects.all()
