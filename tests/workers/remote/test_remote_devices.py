"""Several devices elsewhere under one supervisor, which leave them when nothing is to be done."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from synth.models import Segment, WorkerStatus
from tests.factories import make_user
from tests.workers.commands import child_pid, children_of
from tests.workers.pairs import (
    assert_whole,
    counter,
    new_voice,
    submit,
    wait_encoded,
    wait_ended,
    wait_for,
)
from tests.workers.remote.sites import RemoteSetting
from ttsweb.commands.base import CommandError

State = WorkerStatus.State
FILES = pytest.mark.parametrize("pair", ["files"], indirect=True)
BOTH = ("--devices", "cpu,cpu")


def states(names: list[str]) -> list[str]:
    rows = dict(WorkerStatus.objects.filter(pk__in=names).values_list("pk", "state"))
    return [rows.get(name, "") for name in names]


def wait_states(names: list[str], state: State) -> None:
    wait_for(lambda: states(names) == [state] * 2, what=f"both workers are {state}")


@FILES
def test_workers_of_two_devices_serve_a_site_with_a_key_and_leave_their_devices_when_idle(
    setting: RemoteSetting, client: Client
) -> None:
    home = setting.home
    supervisor = home.start_worker("home", *BOTH, TTS_IDLE_UNLOAD_SECONDS="0.5")
    names = [f"{home.key.pk.hex[:12]}/home-{device}" for device in ("cpu", "cpu-2")]
    wait_states(names, State.UNLOADED)
    loaded = dict(WorkerStatus.objects.values_list("pk", "figures__load_seconds"))
    assert all(loaded[name] > 0 for name in names)

    client.force_login(make_user("boss", is_staff=True, is_superuser=True))
    listed = client.get(reverse("admin:synth_workerstatus_changelist")).content.decode()
    for name in names:
        page = client.get(reverse("admin:synth_workerstatus_change", args=[quote(name)]))
        assert page.status_code == 200
        assert name in page.content.decode() and "unloaded" in page.content.decode()
        assert name in listed

    voice = new_voice()
    wait_encoded(voice)
    job = submit(voice, sentences=24)
    wait_ended(job)
    assert_whole(job)
    assert set(Segment.objects.values_list("claimed_by", flat=True)) <= set(names)
    assert counter("encoder_run") == 1
    assert home.secret not in "".join(children_of(supervisor.popen.pid))  # any user may list them
    wait_states(names, State.UNLOADED)

    started = {row.pk: row.started_at for row in WorkerStatus.objects.filter(pk__in=names)}
    os.kill(child_pid(supervisor.popen.pid, "--name home-cpu-2"), signal.SIGKILL)
    rows = WorkerStatus.objects.filter(pk=names[1]).exclude(started_at=started[names[1]])
    wait_for(rows.exists, what="the second one is back under its name")
    assert WorkerStatus.objects.get(pk=names[0]).started_at == started[names[0]]

    assert supervisor.stop() == 0
    assert states(names) == [State.STOPPED] * 2
    there = {path.name for path in home.folder.iterdir()}
    assert not there & {"db.sqlite3", "storage"}


@FILES
def test_key_that_opens_nothing_ends_the_supervisor_which_says_so(setting: RemoteSetting) -> None:
    supervisor = setting.home.start_worker("home", *BOTH, TTS_API_KEY="tts_none")

    assert supervisor.popen.wait(180) == 1
    assert "This API key does not exist" in supervisor.log
    assert "worker home-cpu-2 on cpu ended with exit code 1" in supervisor.log


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"role": "all"}, "--role all needs its database"),
        ({"concurrency": 2}, "leave them out"),
        ({"key": ""}, "needs a key"),
        ({"server": "http://tts.example.org"}, "use https://"),
        ({"devices": "cuda:77"}, "there is no device 'cuda:77'"),
    ],
)
def test_what_does_not_go_together_is_said_once_before_any_worker_starts(
    options: dict[str, Any], sentence: str, settings: Settings
) -> None:
    settings.API_KEY = ""
    own = {"server": "https://127.0.0.1:9", "key": "tts_x", "devices": "cpu,cpu"}
    with pytest.raises(CommandError, match=sentence):
        call_command("worker", **{**own, **options})
