#!/usr/bin/env python3
"""Run a management command; `./tts` calls this with the project's own Python."""

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ttsweb.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
