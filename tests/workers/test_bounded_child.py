"""A child that was too slow is refused; one that others kept from the processor is tried again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from workers import bounded_child
from workers.bounded_child import Ends, Limits, StarvedError, run_child

ENDS = Ends(memory=("memory", "M."), timeout=("timeout", "T."), unreadable=("unreadable", "U."))


class RefusedError(Exception):
    """What a file's own reader refuses with."""


def run(seconds: float, **request: Any) -> dict[str, Any]:
    limits = Limits(seconds, 1024, 1 << 20)
    return run_child("tests.workers.test_bounded_child", request, limits, ENDS, RefusedError)


def test_answer_comes_back() -> None:
    assert run(120.0, sleep=0.0) == {"slept": 0.0}


def test_child_that_did_not_get_the_processor_may_be_tried_again() -> None:
    with pytest.raises(StarvedError) as caught:
        run(4.0, sleep=60.0)

    assert (caught.value.code, str(caught.value), caught.value.retryable) == ("timeout", "T.", True)


def test_child_that_computes_all_the_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_child, "LEAST_PROCESSOR_SHARE", 0.01)  # however busy others are

    with pytest.raises(RefusedError) as caught:
        run(1.0, sleep=None)

    assert caught.value.args == ("timeout", "T.")


def test_child_that_is_ended_is_not_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def keep(*arguments: Any, **options: Any) -> Any:
        started.append(real(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", keep)
    # However much of its time a busy machine takes to start it.
    monkeypatch.setattr(bounded_child, "LEAST_PROCESSOR_SHARE", 100.0)
    with pytest.raises(StarvedError):
        run(0.5, sleep=60.0)

    assert started[0].returncode == -9
    with pytest.raises(ProcessLookupError):
        os.kill(started[0].pid, 0)


def main() -> None:
    """Be the child: sleep so long, or compute without end."""
    request = json.load(sys.stdin)
    if request["sleep"] is None:
        while True:
            pass
    time.sleep(request["sleep"])
    sys.stdout.write(json.dumps({"slept": request["sleep"]}))


if __name__ == "__main__":
    main()
