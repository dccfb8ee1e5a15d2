"""Do a benchmark's work in a child process: `python -m lab.bench.service.child MODULE PLAN_FILE`.

The module's `work(plan)` returns the answer. Standard output carries JSON objects to the process
that started this one, one a line: `progress` with a text, and at last `answer`, or `error` with
`code` and `message`.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def main() -> None:
    """Run the work and say what came of it."""
    import django

    django.setup()
    from ttsweb.commands.base import StepError
    from ttsweb.migration import migrate_once

    module, plan_path = sys.argv[1:3]
    plan = json.loads(Path(plan_path).read_text(encoding="utf-8"))
    try:
        from django.conf import settings

        migrate_once(settings.DATA_DIR)
        say(answer=import_module(module).work(plan))
    except StepError as error:
        say(error={"code": error.code, "message": str(error)})


def say(**line: Any) -> None:
    """Write one line to the process that started this one."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
