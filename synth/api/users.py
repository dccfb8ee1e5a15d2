"""Serve users, groups and the names of permissions over REST, to superusers.

A key needs the scope `admin` for all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission, User
from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError as DjangoValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.db.models import Count, QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.views import APIView

from synth.api.fields import NOT_BLANK, StrictTextField, boolean, integer, string
from synth.models import ApiKey
from ttsweb.http.api import ApiProblem, StrictSerializer
from ttsweb.http.fields import ShownField, StrictBooleanField
from ttsweb.http.nouns import ListView, Noun, get_row
from ttsweb.http.pagination import CreatedCursorPagination
from ttsweb.rights import OWN_RIGHTS

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
        return sorted(name_of(permission) for permission in data.all())


def name_of(permission: Permission) -> str:
    """Return `app.codename` of a permission whose content type is loaded."""
    return f"{permission.content_type.app_label}.{permission.codename}"


_USERNAME = r"^[\w.@+-]+$"
_EMAIL = {"anyOf": [{"maxLength": 0}, {"format": "email"}]}
_MAX_NAME_CHARS = 150


class UserUpdateSerializer(StrictSerializer):
    """Changes of a user; fields that are left out do not change."""

    username = StrictTextField(
        max_length=_MAX_NAME_CHARS, pattern=_USERNAME, validators=[UnicodeUsernameValidator()]
    )
    password = StrictTextField(
        max_length=1000,
        required=False,
        described={"minLength": 8},  # of MinimumLengthValidator
        help_text="A new password; it also logs the user out everywhere.",
    )
    is_active = StrictBooleanField(
        required=False, help_text="False: the user can neither log in nor use API keys."
    )
    is_staff = StrictBooleanField(required=False, help_text="May log in to the admin.")
    is_superuser = StrictBooleanField(required=False, help_text="May see and change everything.")
    first_name = StrictTextField(max_length=_MAX_NAME_CHARS, required=False)
    last_name = StrictTextField(max_length=_MAX_NAME_CHARS, required=False)
    email = StrictTextField(
        max_length=254,
        required=False,
        described=_EMAIL,
        help_text="An e-mail address, or an empty text. Notices that the user asks for go there.",
    )
    groups = serializers.ListField(
        child=StrictTextField(max_length=_MAX_NAME_CHARS), required=False, max_length=100
    )
    permissions = PermissionsField(
        required=False,
        help_text="The user's own permissions, besides those of the groups. A new list replaces "
        "the old one.",
    )

    def validate_username(self, value: str) -> str:
        if not value:
            raise serializers.ValidationError("Give the user a name.", code="blank")
        return value

    def validate_email(self, value: str) -> str:
        if value:
            try:
                validate_email(value)
            except DjangoValidationError as error:
                sentence = "Expected an address such as eve@example.org, or an empty text."
                raise serializers.ValidationError(sentence, code="invalid") from error
        return value

    def validate_password(self, value: str) -> str:
        try:
            validate_password(value)
        except DjangoValidationError as error:
            raise serializers.ValidationError(error.messages, code="password_weak") from error
        return value

    def validate_groups(self, value: list[str]) -> list[Group]:
        found = list(Group.objects.filter(name__in=value))
        unknown = sorted(set(value) - {group.name for group in found})
        if unknown:
            raise serializers.ValidationError(
                f"There is no group {unknown[0][:100]!r}; GET /api/v1/groups lists all groups.",
                code="group_unknown",
            )
        return found


class UserCreateSerializer(UserUpdateSerializer):
    """A user to create. A user without a password cannot log in, but can have API keys."""


class UserSerializer(serializers.ModelSerializer[User]):
    """A user; the password is never shown."""

    email = ShownField(lambda user: user.email, {"type": "string", **_EMAIL})
    groups = serializers.SlugRelatedField[Group](many=True, slug_field="name", read_only=True)
    permissions = PermissionsField(source="user_permissions", read_only=True)
    has_password = boolean(source="has_usable_password")

    class Meta:
        model = User
        fields = (
            "id", "username", "first_name", "last_name", "email", "is_active", "is_staff",
            "is_superuser", "has_password", "groups", "permissions", "date_joined", "last_login",
        )  # fmt: skip
        read_only_fields = fields


class UserCursorPagination(CreatedCursorPagination):
    """In the order they were made; `?limit=` from 1 to 200."""

    ordering = ("id",)  # type: ignore[assignment]  # as long as it has to be


class SuperuserView(APIView):
    """A view for superusers; a key of one needs the scope `admin` besides."""

    read_scopes = write_scopes = (ApiKey.Scope.ADMIN,)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse everybody else before anything of a request is looked at.

        Raises:
            ApiProblem: 403 superuser_required.
        """
        super().initial(request, *args, **kwargs)
        is_served = hasattr(self, str(request.method).lower())  # else it is going to be a 405
        if is_served and not getattr(request.user, "is_superuser", False):
            sentence = (
                "Only a superuser can manage users and groups; a superuser's API key needs the "
                "scope 'admin'."
            )
            raise ApiProblem(403, "superuser_required", sentence)


def _find_other(request: Request, user_id: int) -> User:
    """Return a user who is not the one that asks.

    Raises:
        ApiProblem: 409 own_account.
    """
    user = _find(request, user_id)
    if user.pk == request.user.pk:
        sentence = "You cannot take away your own rights; ask another superuser to do it."
        raise ApiProblem(409, "own_account", sentence)
    return user


def _users() -> QuerySet[User]:
    related = ("groups", "user_permissions__content_type")
    return get_user_model().objects.prefetch_related(*related)


def _find(request: Request, user_id: int) -> User:
    return get_row(_users(), "user_not_found", "There is no user with this id.", pk=user_id)


@contextmanager
def _unique(attr: str, code: str, sentence: str) -> Iterator[None]:
    """Write in a transaction; a name that another row has is a 409."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError as error:
        raise ApiProblem(409, code, sentence, attr=attr) from error


def _save(user: User, fields: Mapping[str, Any]) -> User:
    """Set and save columns, password, groups and permissions, and return the row as it is now."""
    columns = [name for name in fields if name not in ("password", "groups", "permissions")]
    for name in columns:
        setattr(user, name, fields[name])
    if "password" in fields:
        user.set_password(fields["password"])
        columns.append("password")
    taken = "Another user has this name; choose another name."
    with _unique("username", "username_taken", taken):
        user.save(update_fields=None if user.pk is None else columns)
        if "groups" in fields:
            user.groups.set(fields["groups"])
        if "permissions" in fields:
            user.user_permissions.set(fields["permissions"])
    return _users().get(pk=user.pk)


def _make(request: Request, asked: Mapping[str, Any]) -> User:
    return _save(get_user_model()(), {"password": None, **asked})


def _change(request: Request, user: User, asked: Mapping[str, Any]) -> None:
    if any(asked.get(right) is False for right in OWN_RIGHTS):
        _find_other(request, user.pk)
    _save(user, asked)


USER = Noun("user", UserSerializer, _find)


class UsersView(SuperuserView, ListView[User]):
    lists = ("list_users", "List users, oldest first.", 403)
    serializer_class = UserSerializer
    pagination_class = UserCursorPagination

    def rows(self) -> QuerySet[User]:
        return _users()

    post = USER.maker("create_user", "Create a user.", _make, UserCreateSerializer, 403, 409)


class UserView(SuperuserView):
    get = USER.getter("get_user", "Return a user.", 403)
    patch = USER.changer(
        "update_user",
        "Change a user. You cannot take away your own rights, so that somebody keeps them.",
        _change,
        UserUpdateSerializer,
        *(403, 409),
    )
    delete = USER.deleter(
        "delete_user",
        "Delete a user with API keys and voices.\n\nThe jobs are kept, and only superusers see "
        "them.",
        User.delete,
        *(403, 409),
        find=_find_other,
    )


class GroupUpdateSerializer(StrictSerializer):
    """Changes of a group; fields that are left out do not change."""

    name = StrictTextField(max_length=_MAX_NAME_CHARS, pattern=NOT_BLANK)
    permissions = PermissionsField(
        required=False,
        help_text="What the group's users may do in the admin; replaces the whole list.",
    )

    def validate_name(self, value: str) -> str:
        if not value.strip():
            raise serializers.ValidationError("Give the group a name.", code="blank")
        return value.strip()


class GroupCreateSerializer(GroupUpdateSerializer):
    """A group to create."""


class GroupSerializer(serializers.ModelSerializer[Group]):
    """A group, its permissions and the number of its users."""

    permissions = PermissionsField(read_only=True)
    users = integer(source="num_users", read_only=True)

    class Meta:
        model = Group
        fields = ("id", "name", "permissions", "users")
        read_only_fields = fields


class PermissionSerializer(serializers.Serializer[Permission]):
    """A permission: its name for requests, and its description."""

    permission = ShownField(name_of, help_text="Return `app.codename`.")
    name = string()


class PermissionCursorPagination(UserCursorPagination):
    """In the order of the rows; `?limit=` from 1 to 200, all that there are unless it is given."""

    page_size = 200


def _groups() -> QuerySet[Group]:
    groups = Group.objects.annotate(num_users=Count("user", distinct=True))
    return groups.prefetch_related("permissions__content_type")


def _find_group(request: Request, group_id: int) -> Group:
    return get_row(_groups(), "group_not_found", "There is no group with this id.", pk=group_id)


def _save_group(group: Group, fields: Mapping[str, Any]) -> Group:
    with _unique("name", "group_name_taken", "Another group has this name; choose another name."):
        if "name" in fields:
            group.name = fields["name"]
            group.save()
        if "permissions" in fields:
            group.permissions.set(fields["permissions"])
    return _groups().get(pk=group.pk)


GROUP = Noun("group", GroupSerializer, _find_group)


class PermissionsView(SuperuserView, ListView[Permission]):
    lists = ("list_permissions", "List permissions with the names that groups and users take.", 403)
    serializer_class = PermissionSerializer
    pagination_class = PermissionCursorPagination

    def rows(self) -> QuerySet[Permission]:
        return Permission.objects.select_related("content_type")


class GroupsView(SuperuserView, ListView[Group]):
    lists = ("list_groups", "List groups, oldest first.", 403)
    serializer_class = GroupSerializer
    pagination_class = UserCursorPagination

    def rows(self) -> QuerySet[Group]:
        return _groups()

    post = GROUP.maker(
        "create_group",
        "Create a group; assign users to it with PATCH /api/v1/users/{id}.",
        lambda request, asked: _save_group(Group(), asked),
        GroupCreateSerializer,
        *(403, 409),
    )


class GroupView(SuperuserView):
    get = GROUP.getter("get_group", "Return a group.", 403)
    patch = GROUP.changer(
        "update_group",
        "Change a group's name or permissions; they apply from its users' next request on.",
        lambda request, group, asked: _save_group(group, asked),
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
