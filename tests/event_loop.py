"""Let tests be coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

Given = ParamSpec("Given")


def in_event_loop(test: Callable[Given, Coroutine[Any, Any, None]]) -> Callable[Given, None]:
    """Run a test in an event loop of its own; it is given its fixtures as any other."""

    @wraps(test)
    def run(*arguments: Given.args, **named: Given.kwargs) -> None:
        asyncio.run(test(*arguments, **named))

    return run
