"""Messages as files: whoever looks while one is written finds none, then the whole of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from kombu import Connection
from kombu.exceptions import ChannelError

from ttsweb.configuration.builders import broker_settings


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[Any]:
    found = broker_settings(None, data_dir=tmp_path)
    options = found["broker_transport_options"]
    for name in ("data_folder_in", "control_folder"):
        Path(options[name]).mkdir(parents=True)
    with Connection(
        found["broker_url"], transport=found["broker_transport"], transport_options=options
    ) as connection:
        yield connection.channel()


def test_message_is_found_when_it_is_complete(
    channel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    rename = Path.replace

    def look_first(source: Path, target: Path) -> Path:
        with pytest.raises(Empty):
            channel._get("cpu")
        looks.append(target.name)
        return rename(source, target)

    monkeypatch.setattr(Path, "replace", look_first)
    message = {"body": "Straße", "properties": {}}

    channel._put("cpu", message)

    assert len(looks) == 1
    assert channel._get("cpu") == message
    with pytest.raises(Empty):
        channel._get("cpu")


def test_messages_come_to_their_queue(channel: Any) -> None:
    for number in range(3):
        channel._put("cpu", {"number": number})
    channel._put("synth", {"number": 9})
    assert channel._size("cpu") == 3
    assert sorted(channel._get("cpu")["number"] for _ in range(3)) == [0, 1, 2]
    assert channel._get("synth") == {"number": 9}


def test_folder_that_cannot_be_written_is_an_error_of_the_channel(channel: Any) -> None:
    Path(channel.data_folder_in).rmdir()
    with pytest.raises(ChannelError):
        channel._put("cpu", {})
