"""Kombu's transport for messages as files, whose readers never see a file that is half written."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

from kombu.exceptions import ChannelError
from kombu.transport import filesystem
from kombu.utils.json import dumps


class Channel(filesystem.Channel):
    """Kombu's queue of messages as files, each of which gets its own name when it is complete.

    Kombu opens the file under its name, locks it and writes: a reader that looks in between finds
    it empty, and its worker then loses the connection.
    """

    def _put(self, queue: str, message: Any, **_: Any) -> None:  # type: ignore[override]
        name = f"{round(time.monotonic() * 1000)}_{uuid.uuid4()}.{queue}.msg"
        path = Path(self.data_folder_out, name)
        partial = path.with_name(f"{name}.partial")  # no queue has messages of this name
        try:
            partial.write_bytes(dumps(message).encode())
            partial.replace(path)
        except OSError as error:
            raise ChannelError(f"Cannot add file {str(path)!r} to directory") from error


class Transport(filesystem.Transport):
    Channel = Channel
