"""Serve groups and the names of permissions over REST, to superusers, as users are served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import Group, Permission
from django.db import IntegrityError, transaction
from django.db.models import Count, QuerySet
from rest_framework import serializers
from rest_framework.request import Request

from synth.api.accounts.user_views import (
    LARGEST_ID,
    PermissionsField,
    SuperuserView,
    UserCursorPagination,
    name_of,
)
from synth.api.fields import NOT_BLANK, StrictTextField
from ttsweb.http.api import ApiProblem, StrictSerializer
from ttsweb.http.fields import ShownField
from ttsweb.http.nouns import ListView, Noun, list_rows

_MAX_NAME_CHARS = 150


class GroupUpdateSerializer(StrictSerializer):
    """Changes of a group; fields that are left out do not change."""

    name = StrictTextField(max_length=_MAX_NAME_CHARS, required=False, pattern=NOT_BLANK)
    permissions = PermissionsField(
        required=False,
        help_text="What the group's users may do in the admin; replaces the whole list.",
    )

    def validate_name(self, value: str) -> str:
        """Refuse a name of blanks alone; blanks around one are cut off."""
        if not value.strip():
            raise serializers.ValidationError("Give the group a name.", code="blank")
        return value.strip()


class GroupCreateSerializer(GroupUpdateSerializer):
    """A group to create."""

    name = StrictTextField(max_length=_MAX_NAME_CHARS, pattern=NOT_BLANK)


class GroupSerializer(serializers.ModelSerializer[Group]):
    """A group, its permissions and the number of its users."""

    permissions = PermissionsField(read_only=True)
    users = serializers.IntegerField(source="num_users", read_only=True)

    class Meta:
        model = Group
        fields = ("id", "name", "permissions", "users")
        read_only_fields = fields


class PermissionSerializer(serializers.Serializer[Permission]):
    """A permission: its name for requests, and its description."""

    permission = ShownField(name_of, help_text="Return `app.codename`.")
    name = serializers.CharField()


class PermissionCursorPagination(UserCursorPagination):
    """In the order of the rows; `?limit=` from 1 to 200, all that there are unless it is given."""

    page_size = 200


def _groups() -> QuerySet[Group]:
    groups = Group.objects.annotate(num_users=Count("user", distinct=True))
    return groups.prefetch_related("permissions__content_type")


def _find(request: Request, group_id: int) -> Group:
    group = _groups().filter(pk=group_id).first() if group_id <= LARGEST_ID else None
    if group is None:
        raise ApiProblem(404, "group_not_found", "There is no group with this id.")
    return group


def _save(group: Group, fields: Mapping[str, Any]) -> Group:
    """Set and save name and permissions, and return the row as it is now.

    Raises:
        ApiProblem: 409 group_name_taken.
    """
    try:
        with transaction.atomic():
            if "name" in fields:
                group.name = fields["name"]
                group.save()
            if "permissions" in fields:
                group.permissions.set(fields["permissions"])
    except IntegrityError as error:
        raise ApiProblem(
            409,
            "group_name_taken",
            "Another group has this name; choose another name.",
            attr="name",
        ) from error
    return _groups().get(pk=group.pk)


GROUP = Noun("group", GroupSerializer, _find)


class PermissionsView(SuperuserView, ListView[Permission]):
    serializer_class = PermissionSerializer
    pagination_class = PermissionCursorPagination

    def get_queryset(self) -> QuerySet[Permission]:
        """Return all of them."""
        return Permission.objects.select_related("content_type")

    get = list_rows(
        "list_permissions",
        "List permissions with the names that groups and users take.",
        PermissionSerializer,
        403,
    )


class GroupsView(SuperuserView, ListView[Group]):
    serializer_class = GroupSerializer
    pagination_class = UserCursorPagination

    def rows(self) -> QuerySet[Group]:
        return _groups()

    get = list_rows("list_groups", "List groups, oldest first.", GroupSerializer, 403)
    post = GROUP.maker(
        "create_group",
        "Create a group; assign users to it with PATCH /api/v1/users/{id}.",
        lambda request, asked: _save(Group(), asked),
        GroupCreateSerializer,
        *(403, 409),
    )


class GroupView(SuperuserView):
    get = GROUP.getter("get_group", "Return a group.", 403)
    patch = GROUP.changer(
        "update_group",
        "Change a group's name or permissions; they apply from its users' next request on.",
        lambda request, group, asked: _save(group, asked),
        GroupUpdateSerializer,
        *(403, 409),
    )
    delete = GROUP.deleter(
        "delete_group",
        "Delete a group.\n\nIts users are kept, without the permissions that only this group gave "
        "them.",
        Group.delete,
        403,
    )
