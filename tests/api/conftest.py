"""Give tests of all routes the services that jobs need."""

from tests.synth.conftest import (  # noqa: F401  # fixtures are found by their names
    client_of,
    job_services,
    message_folder,
    storage_folder,
)
