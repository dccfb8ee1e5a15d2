"""What `./tts doctor` says of memory: the slots here, and the real model on usual GPUs."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from synth.engine.device import DeviceMemory
from tests.workers.commands import PROJECT
from workers.local import doctor_engine as memory


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    """A container of 4 GB of which 1 GB is free."""
    settings.CHECKPOINT, settings.DEVICE = PROJECT / "synth" / "demo", "cpu"
    found = DeviceMemory(10**9, 4 * 10**9, "this container")
    monkeypatch.setattr(memory, "find_memory", lambda _: found)


def test_memory_says_how_many_slots_the_engine_will_have(
    little_memory: None, settings: Settings
) -> None:
    settings.ENGINE_SLOTS, settings.ENGINE_MAX_POSITIONS = 0, 1024
    found = memory.look_at_memory()
    assert found.level == "ok"
    assert found.text.startswith("16 slots (chosen by the engine) of 1024 positions")
    assert "this container has 1.0 GB free" in found.text
    assert found.rows[0]["total_bytes"] == sum(found.rows[0]["parts"].values()) <= 10**9
    assert any("keys and values of the slots" in line for line in found.table)


def test_slots_that_never_fit_fail_with_the_numbers(
    little_memory: None, settings: Settings
) -> None:
    settings.ENGINE_SLOTS, settings.ENGINE_MAX_POSITIONS = 512, 4096
    found = memory.look_at_memory()
    assert found.level == "fail"
    assert "512 slots of 4096 positions need" in found.text
    assert "TTS_ENGINE_SLOTS to " in found.text


def test_slots_that_others_leave_no_room_for_are_a_warning(
    little_memory: None, settings: Settings
) -> None:
    settings.ENGINE_SLOTS, settings.ENGINE_MAX_POSITIONS = 96, 4096
    found = memory.look_at_memory()
    assert found.level == "warn"
    assert "3.0 GB are in use now" in found.text


def test_profiles_grow_with_the_device_and_shrink_with_the_positions() -> None:
    found = memory.look_at_profiles()

    slots = {(row["device_gb"], row["max_positions"]): row["slots"] for row in found.rows}
    assert len(slots) == 15
    assert all(slots.values()), "the model fits on each of these"
    sizes = (16, 24, 48, 80, 141)
    for positions in (1024, 2048, 4096):
        column = [slots[size, positions] for size in sizes]
        assert column == sorted(column)
    assert all(slots[size, 1024] > slots[size, 2048] > slots[size, 4096] for size in sizes)
    for row in found.rows:
        assert row["total_bytes"] <= row["device_gb"] * 10**9
    assert found.line().count("\n") == 6
