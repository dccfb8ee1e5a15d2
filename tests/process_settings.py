"""Settings of a process that a test starts: the service's, and what `TTS_TEST_CHANGED` changes.

What no variable of the service changes, a settings module of one's own may, as with every Django
project; this is one. The variable holds a JSON object of names and values.
"""

from __future__ import annotations

import json
import os

from ttsweb.settings import *  # noqa: F403

globals().update(json.loads(os.environ.get("TTS_TEST_CHANGED", "{}")))
