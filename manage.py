#!/usr/bin/env python3
"""Run a management command; `./tts` calls this with the project's own Python."""

import os
import sys


def main() -> None:
    """Run the command; what it needs of Django is loaded by the command itself."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ttsweb.settings")
    from ttsweb.commands.line import run

    run(sys.argv)


if __name__ == "__main__":
    main()
