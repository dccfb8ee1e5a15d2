"""Read what requests say of API keys, and write what answers show of them; the secret only once."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from synth.api.fields import NOT_BLANK, StrictNumberField, StrictTextField
from synth.models import ApiKey
from ttsweb.http.api import StrictSerializer
from ttsweb.rights import LIMITS

_MOST = dict.fromkeys(LIMITS, 2**31 - 1) | {"max_stored_bytes": 2**63 - 1}
STATES = ("active", "expired", "revoked")


def _limit(name: str, words: str = "") -> StrictNumberField:
    words = words or str(ApiKey._meta.get_field(name).verbose_name)  # type: ignore[union-attr]
    return StrictNumberField(
        low=0,
        high=_MOST[name],
        whole=True,
        allow_null=True,
        required=False,
        help_text=f"Limit: {words}; null: no limit.",
    )


class KeyUpdateSerializer(StrictSerializer):
    """Changes of a key; fields that are left out do not change."""

    name = StrictTextField(max_length=100, required=False, pattern=NOT_BLANK)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=ApiKey.Scope.choices),
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
    max_queued_chars = _limit("max_queued_chars")
    max_unfinished_jobs = _limit("max_unfinished_jobs")
    max_requests_per_minute = _limit("max_requests_per_minute")
    max_stored_bytes = _limit(
        "max_stored_bytes", "most stored bytes of clips, finished files and uploaded books"
    )

    def validate_name(self, value: str) -> str:
        """Return the name without blanks around it."""
        if not value.strip():
            raise serializers.ValidationError("Say what the key is for.", code="blank")
        return value.strip()

    def validate_scopes(self, value: list[str]) -> list[str]:
        """Return the scopes, each once and in their order."""
        return [scope for scope in ApiKey.Scope.values if scope in value]

    def validate_expires_at(self, value: Any) -> Any:
        """Refuse a moment that is over."""
        if value is not None and value <= timezone.now():
            raise serializers.ValidationError(
                "This time is in the past; choose a later one.", code="in_the_past"
            )
        return value


class KeyCreateSerializer(KeyUpdateSerializer):
    """A key to create."""

    name = StrictTextField(max_length=100, pattern=NOT_BLANK)
    user = StrictTextField(
        max_length=150,
        required=False,
        help_text=(
            "Name of the user who gets the key. Only a superuser can name another user; a "
            "superuser's API key needs the scope `admin`."
        ),
    )


class KeySerializer(serializers.ModelSerializer[ApiKey]):
    """A key, without its secret."""

    user = serializers.CharField(source="user.username")
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=ApiKey.Scope.choices))
    state = serializers.SerializerMethodField()

    class Meta:
        model = ApiKey
        fields = (
            "id",
            "name",
            "user",
            "prefix",
            "state",
            "scopes",
            *LIMITS,
            "created_at",
            "last_used_at",
            "expires_at",
            "revoked_at",
        )
        read_only_fields = fields

    @extend_schema_field(serializers.CharField(help_text=f"One of {', '.join(STATES)}."))
    def get_state(self, key: ApiKey) -> str:
        """Return whether it opens anything."""
        if key.revoked_at is not None:
            return "revoked"
        is_over = key.expires_at is not None and key.expires_at <= timezone.now()
        return "expired" if is_over else "active"


class NewKeySerializer(KeySerializer):
    """A new key with its secret, which cannot be read again."""

    key = serializers.CharField(help_text="The key itself. Store it now; it is not shown again.")

    class Meta(KeySerializer.Meta):
        fields = (*KeySerializer.Meta.fields, "key")
        read_only_fields = fields
