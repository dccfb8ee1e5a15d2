"""Which account a command of this machine speaks as, and the key that stands for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import User

from synth.accounts.access import create_key, find_key, revoke_key
from synth.models import ApiKey
from ttsweb.commands.base import StepError
from workers.local.site import find_account, kept_secret

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("users", "name", "code"),
    [
        ([], "", "user_missing"),
        (["ada", "bert"], "", "user_ambiguous"),
        (["ada"], "bert", "user_not_found"),
        (["ada"], "Ada", "user_not_found"),
    ],
)
def test_account_that_nobody_can_tell_is_an_error(users: list[str], name: str, code: str) -> None:
    for one in users:
        User.objects.create_user(one)
    User.objects.create_user("gone", is_active=False)
    with pytest.raises(StepError) as caught:
        find_account(name, "--user")
    assert caught.value.code == code


def test_kept_secret_is_the_same_until_it_opens_nothing(tmp_path: Path) -> None:
    ada, bert = User.objects.create_user("ada"), User.objects.create_user("bert")
    path = tmp_path / "mcp_key"
    first = kept_secret(ada, "MCP", path)

    assert kept_secret(ada, "MCP", path) == first == path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    row = find_key(first)
    assert (row.user, row.name, row.scopes) == (ada, "MCP", ["read", "jobs"])

    revoke_key(row)
    second = kept_secret(ada, "MCP", path)
    assert second != first and find_key(second).pk != row.pk
    assert find_key(kept_secret(bert, "MCP", path)).user == bert
    path.write_text("no key")
    third = kept_secret(ada, "MCP", path)
    assert find_key(third).user == ada
    assert ApiKey.objects.filter(user=ada, revoked_at=None).count() == 1


def test_key_that_somebody_made_by_that_name_keeps_its_limits(tmp_path: Path) -> None:
    ada = User.objects.create_user("ada")
    create_key(ada, "MCP", limits={"max_unfinished_jobs": 2})

    row = find_key(kept_secret(ada, "MCP", tmp_path / "key"))

    assert row.max_unfinished_jobs == 2 and ApiKey.objects.count() == 1
