"""Settings of the processes that are tortured: the service's, with the app that plants faults."""

from __future__ import annotations

from ttsweb.settings import *  # noqa: F403
from ttsweb.settings import INSTALLED_APPS as _APPS

INSTALLED_APPS = [*_APPS, "lab.torture.plants.PlantsConfig"]
