"""Give tests of all routes the services that jobs need, and a served project."""

from collections.abc import Iterator

import pytest

from tests.api.served import Served, serve
from tests.synth.conftest import (  # noqa: F401  # fixtures are found by their names
    client_of,
    job_services,
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A served project with one thing of each kind; nothing in it may fail unforeseen.

    Each file has its own: generated requests rename and delete what is in it.
    """
    with serve(tmp_path_factory.mktemp("served")) as made:
        made.fill()
        yield made
        head, mark, trace = made.log.read_text().partition("Traceback")
        assert not mark, head[-500:] + mark + trace[:5000]
