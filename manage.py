#!/usr/bin/env python3
"""Run a management command; `./tts` calls this with the project's own Python."""

import os
import sys


def main() -> None:
    """Check the settings first, so that a bad value is one sentence and not a traceback."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ttsweb.settings")
    from django.conf import settings
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        settings.INSTALLED_APPS  # noqa: B018  # loads them
    except ImproperlyConfigured as error:
        sys.exit(f"settings: {error}")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
