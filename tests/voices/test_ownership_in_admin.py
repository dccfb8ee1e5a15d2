"""The voices' pages of the admin keep to whose voice it is."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from tests.factories import make_user, make_voice
from voices.models import Voice

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def ada_user() -> User:
    """Somebody else."""
    return make_user("ada")


@pytest.fixture
def page() -> Client:
    """The admin as a member of the staff who may do everything with voices."""
    staff = make_user("staff", is_staff=True)
    staff.user_permissions.set(Permission.objects.filter(content_type__app_label="voices"))
    page = Client()
    page.force_login(staff)
    return page


def test_staff_changes_own_voices_alone(page: Client, ada_user: User) -> None:
    hidden = make_voice("hidden", owner=ada_user)
    shared = make_voice("shared", owner=ada_user, shared=True)
    own = make_voice("own", owner=User.objects.get(username="staff"))
    paths = {one.name: f"/admin/voices/voice/{one.pk}/change/" for one in (hidden, shared, own)}
    listed = page.get("/admin/voices/voice/").content.decode()

    assert [name for name, path in paths.items() if path in listed] == ["shared", "own"]
    assert page.get(paths["hidden"]).status_code == 302
    shown = page.get(paths["shared"])
    assert (shown.status_code, b'name="transcript' in shown.content) == (200, False)
    assert b'type="submit"' not in shown.content or b'name="_save"' not in shown.content
    assert page.post(paths["shared"], {"name": "mine"}).status_code == 403
    assert (
        page.post(paths["shared"].replace("change", "delete"), {"post": "yes"}).status_code == 403
    )
    assert b'name="_save"' in page.get(paths["own"]).content


@pytest.mark.parametrize("action", ["encode_again", "archive", "delete_selected"])
def test_action_on_many_leaves_voices_of_others(page: Client, ada_user: User, action: str) -> None:
    shared = make_voice("shared", owner=ada_user, shared=True)
    own = make_voice("own", owner=User.objects.get(username="staff"))
    before = Voice.objects.filter(pk=shared.pk).values().get(), list(shared.versions.values())

    page.post(
        "/admin/voices/voice/",
        {"action": action, "_selected_action": [shared.pk, own.pk], "post": "yes"},
    )

    now = Voice.objects.filter(pk=shared.pk).values().get(), list(shared.versions.values())
    assert now == before


def test_form_takes_a_name_that_another_user_has(page: Client, ada_user: User) -> None:
    make_voice("Eve", owner=ada_user)
    own = make_voice("own", owner=User.objects.get(username="staff"))
    make_voice("taken", owner=own.owner)
    path = f"/admin/voices/voice/{own.pk}/change/"
    form = page.get(path).context["adminform"].form

    assert type(form)(form.initial | {"name": "eve"}, instance=own).errors.get("name") is None
    assert type(form)(form.initial | {"name": "TAKEN"}, instance=own).errors["name"]
