"""Settings of the test suite: those of the service, with nothing from the machine they run on.

A developer's `.env` and `TTS_` variables are left out, and the data folder is a fresh one. A
process that a test starts inherits the mark and so obeys the variables which the test gave it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

_MARK = "TTS_TEST_ENVIRONMENT_IS_CLEAN"

if _MARK not in os.environ:
    for _name in [name for name in os.environ if name.startswith("TTS_")]:
        if not _name.startswith("TTS_TEST_"):
            del os.environ[_name]
    _folder = tempfile.mkdtemp(prefix="ttsweb-tests-")
    atexit.register(shutil.rmtree, _folder, ignore_errors=True)
    os.environ.update({_MARK: "yes", "TTS_DATA_DIR": _folder, "TTS_ENV_FILE": os.devnull})
    # The tests' models are tiny: a second thread only waits for the first.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

from ttsweb.settings import *  # noqa: E402, F403

# These passwords protect nothing, and a tenth of all time went into hashing them well.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
