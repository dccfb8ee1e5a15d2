"""Serve users over REST, to superusers; a key needs the scope `admin` for all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission, User
from django.contrib.auth.password_validation import validate_password
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError as DjangoValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.views import APIView

from synth.api.fields import StrictTextField
from synth.models import ApiKey
from ttsweb.http.api import ApiProblem, StrictSerializer
from ttsweb.http.fields import ShownField, StrictBooleanField
from ttsweb.http.nouns import ListView, Noun, list_rows
from ttsweb.http.pagination import CreatedCursorPagination

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


_USERNAME = r"^[\w.@+-]+$"
_EMAIL = {"anyOf": [{"maxLength": 0}, {"format": "email"}]}
LARGEST_ID = 2**31 - 1  # of the column
_OWN_RIGHTS = ("is_active", "is_staff", "is_superuser")


class UserUpdateSerializer(StrictSerializer):
    """Changes of a user; fields that are left out do not change."""

    username = StrictTextField(
        max_length=150, required=False, pattern=_USERNAME, validators=[UnicodeUsernameValidator()]
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
    first_name = StrictTextField(max_length=150, required=False)
    last_name = StrictTextField(max_length=150, required=False)
    email = StrictTextField(
        max_length=254,
        required=False,
        described=_EMAIL,
        help_text="An e-mail address, or an empty text. The server sends no mail to it.",
    )
    groups = serializers.ListField(
        child=StrictTextField(max_length=150), required=False, max_length=100
    )
    permissions = PermissionsField(
        required=False,
        help_text=(
            "The user's own permissions, besides those of the groups. A new list replaces the "
            "old one."
        ),
    )

    def validate_username(self, value: str) -> str:
        """Refuse an empty name."""
        if not value:
            raise serializers.ValidationError("Give the user a name.", code="blank")
        return value

    def validate_email(self, value: str) -> str:
        """Refuse what the admin would refuse as an address."""
        if value:
            try:
                validate_email(value)
            except DjangoValidationError as error:
                sentence = "Expected an address such as eve@example.org, or an empty text."
                raise serializers.ValidationError(sentence, code="invalid") from error
        return value

    def validate_password(self, value: str) -> str:
        """Refuse a password that the admin would refuse."""
        try:
            validate_password(value)
        except DjangoValidationError as error:
            raise serializers.ValidationError(error.messages, code="password_weak") from error
        return value

    def validate_groups(self, value: list[str]) -> list[Group]:
        """Return the groups of these names."""
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

    username = StrictTextField(
        max_length=150, pattern=_USERNAME, validators=[UnicodeUsernameValidator()]
    )


class UserSerializer(serializers.ModelSerializer[User]):
    """A user; the password is never shown."""

    email = ShownField(lambda user: user.email, {"type": "string", **_EMAIL})
    groups = serializers.SlugRelatedField[Group](many=True, slug_field="name", read_only=True)
    permissions = PermissionsField(source="user_permissions", read_only=True)
    has_password = serializers.BooleanField(source="has_usable_password")

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
            raise ApiProblem(
                403,
                "superuser_required",
                "Only a superuser can manage users and groups; a superuser's API key needs the "
                "scope 'admin'.",
            )


def _find_other(request: Request, user_id: int) -> User:
    """Return a user who is not the one that asks.

    Raises:
        ApiProblem: 409 own_account.
    """
    user = _find(request, user_id)
    if user.pk == request.user.pk:
        raise ApiProblem(
            409,
            "own_account",
            "You cannot take away your own rights; ask another superuser to do it.",
        )
    return user


def _users() -> QuerySet[User]:
    related = ("groups", "user_permissions__content_type")
    return get_user_model().objects.prefetch_related(*related)


def _find(request: Request, user_id: int) -> User:
    user = _users().filter(pk=user_id).first() if user_id <= LARGEST_ID else None
    if user is None:
        raise ApiProblem(404, "user_not_found", "There is no user with this id.")
    return user


def _save(user: User, fields: Mapping[str, Any]) -> User:
    """Set and save columns, password, groups and permissions, and return the row as it is now.

    Raises:
        ApiProblem: 409 username_taken.
    """
    columns = [name for name in fields if name not in ("password", "groups", "permissions")]
    for name in columns:
        setattr(user, name, fields[name])
    if "password" in fields:
        user.set_password(fields["password"])
        columns.append("password")
    try:
        with transaction.atomic():
            user.save(update_fields=None if user.pk is None else columns)
            if "groups" in fields:
                user.groups.set(fields["groups"])
            if "permissions" in fields:
                user.user_permissions.set(fields["permissions"])
    except IntegrityError as error:
        raise ApiProblem(
            409,
            "username_taken",
            "Another user has this name; choose another name.",
            attr="username",
        ) from error
    return _users().get(pk=user.pk)


def _make(request: Request, asked: Mapping[str, Any]) -> User:
    return _save(get_user_model()(), {"password": None, **asked})


def _change(request: Request, user: User, asked: Mapping[str, Any]) -> None:
    if any(asked.get(right) is False for right in _OWN_RIGHTS):
        _find_other(request, user.pk)
    _save(user, asked)


USER = Noun("user", UserSerializer, _find)


class UsersView(SuperuserView, ListView[User]):
    serializer_class = UserSerializer
    pagination_class = UserCursorPagination

    def rows(self) -> QuerySet[User]:
        return _users()

    get = list_rows("list_users", "List users, oldest first.", UserSerializer, 403)
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
