"""Name Django's permissions as Django itself does: `app.codename`, such as `synth.view_lexicon`."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Permission
from rest_framework import serializers

from synth.api.fields import StrictTextField

MAX_PERMISSIONS = 500
_LONGEST = 200  # of the columns of both halves, with the dot


class PermissionsField(serializers.ListField):
    """Take names of permissions, and give the rows that they name."""

    def __init__(self, **kwargs: Any) -> None:
        child = StrictTextField(max_length=_LONGEST, help_text="`app.codename`.")
        super().__init__(child=child, max_length=MAX_PERMISSIONS, **kwargs)

    def to_internal_value(self, data: Any) -> list[Permission]:
        """Return the permissions of these names, each once; one query for all of them.

        Raises:
            ValidationError: permission_unknown, for the first one that there is none of.
        """
        names = set(super().to_internal_value(data))
        rows = Permission.objects.select_related("content_type")
        near = rows.filter(codename__in=[name.partition(".")[2] for name in names])
        found = [permission for permission in near if name_of(permission) in names]
        unknown = sorted(names - {name_of(permission) for permission in found})
        if unknown:
            raise serializers.ValidationError(
                f"There is no permission {unknown[0][:100]!r}; GET /api/v1/permissions "
                "lists all permissions.",
                code="permission_unknown",
            )
        return found

    def to_representation(self, data: Any) -> list[str]:
        """Return the names of a row's permissions, in order."""
        return sorted(name_of(permission) for permission in data.all())


def name_of(permission: Permission) -> str:
    """Return `app.codename` of a permission whose content type is loaded."""
    return f"{permission.content_type.app_label}.{permission.codename}"
