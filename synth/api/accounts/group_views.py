"""Serve groups and the names of permissions over REST, to superusers, as users are served."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Group, Permission
from django.db import IntegrityError, transaction
from django.db.models import Count, QuerySet
from django.urls import reverse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.api.accounts.permission_names import PermissionsField, name_of
from synth.api.accounts.user_views import LARGEST_ID, UserCursorPagination, check_superuser
from synth.api.fields import NOT_BLANK, StrictTextField
from synth.models import ApiKey
from ttsweb.http.api import ApiProblem, StrictSerializer, check_query
from ttsweb.http.query_filters import check_not_repeated
from ttsweb.http.schema import problems

_SCOPES = (ApiKey.Scope.ADMIN,)
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

    permission = serializers.SerializerMethodField()
    name = serializers.CharField()

    def get_permission(self, row: Permission) -> str:
        """Return `app.codename`."""
        return name_of(row)


class PermissionCursorPagination(UserCursorPagination):
    """In the order of the rows; `?limit=` from 1 to 200, all that there are unless it is given."""

    page_size = 200


class PermissionsView(generics.ListAPIView[Permission]):
    """All permissions that a group or a user can have."""

    read_scopes = _SCOPES
    serializer_class = PermissionSerializer
    pagination_class = PermissionCursorPagination
    queryset = Permission.objects.select_related("content_type")

    @extend_schema(
        operation_id="list_permissions",
        responses={200: PermissionSerializer(many=True), **problems(400, 401, 403)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List permissions with the names that groups and users take."""
        _check_list(request)
        return super().get(request, *args, **kwargs)


class GroupsView(generics.ListAPIView[Group]):
    """All groups."""

    read_scopes = write_scopes = _SCOPES
    serializer_class = GroupSerializer
    pagination_class = UserCursorPagination

    def get_queryset(self) -> QuerySet[Group]:
        """Return all groups with their permissions."""
        return _groups()

    @extend_schema(
        operation_id="list_groups",
        responses={200: GroupSerializer(many=True), **problems(400, 401, 403)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List groups, oldest first."""
        _check_list(request)
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="create_group",
        request=GroupCreateSerializer,
        parameters=[OpenApiParameter("Location", str, OpenApiParameter.HEADER, response=[201])],
        responses={201: GroupSerializer, **problems(400, 401, 403, 409, 415)},
    )
    def post(self, request: Request) -> Response:
        """Create a group; assign users to it with PATCH /api/v1/users/{id}."""
        check_superuser(request)
        check_query(request, ())
        serializer = GroupCreateSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        group = _save(Group(), serializer.validated_data)
        answer = Response(GroupSerializer(group).data, status=201)
        answer["Location"] = reverse("group", args=[group.pk])
        return answer


class GroupView(APIView):
    """One group."""

    read_scopes = write_scopes = _SCOPES

    @extend_schema(
        operation_id="get_group", responses={200: GroupSerializer, **problems(400, 401, 403, 404)}
    )
    def get(self, request: Request, group_id: int) -> Response:
        """Return a group."""
        check_query(request, ())
        return Response(GroupSerializer(_find(request, group_id)).data)

    @extend_schema(
        operation_id="update_group",
        request=GroupUpdateSerializer,
        responses={200: GroupSerializer, **problems(400, 401, 403, 404, 409, 415)},
    )
    def patch(self, request: Request, group_id: int) -> Response:
        """Change a group's name or permissions; they apply from its users' next request on."""
        check_query(request, ())
        group = _find(request, group_id)
        serializer = GroupUpdateSerializer(data=request.data, partial=True)
        serializer.is_valid(raise_exception=True)
        return Response(GroupSerializer(_save(group, serializer.validated_data)).data)

    @extend_schema(
        operation_id="delete_group", responses={204: None, **problems(400, 401, 403, 404)}
    )
    def delete(self, request: Request, group_id: int) -> Response:
        """Delete a group.

        Its users are kept, without the permissions that only this group gave them.
        """
        check_query(request, ())
        _find(request, group_id).delete()
        return Response(status=204)


def _check_list(request: Request) -> None:
    check_superuser(request)
    check_query(request, ("cursor", "limit"))
    check_not_repeated(request)


def _groups() -> QuerySet[Group]:
    groups = Group.objects.annotate(num_users=Count("user", distinct=True))
    return groups.prefetch_related("permissions__content_type")


def _find(request: Request, group_id: int) -> Group:
    check_superuser(request)
    group = _groups().filter(pk=group_id).first() if group_id <= LARGEST_ID else None
    if group is None:
        raise ApiProblem(404, "group_not_found", "There is no group with this id.")
    return group


def _save(group: Group, fields: dict[str, Any]) -> Group:
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
