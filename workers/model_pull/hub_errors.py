"""Say in a sentence what to do when the publisher's hub refuses or cannot be reached."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ttsweb.commands.errors import StepError
from workers.model_pull.source import ModelSource


@contextmanager
def told(source: ModelSource, revision: str) -> Iterator[None]:
    """Turn the hub library's errors into StepErrors.

    Raises:
        StepError: offline, gated, access_denied, not_found, hub_error, hub_unreachable or
            disk_error.
    """
    from httpx2 import HTTPError
    from huggingface_hub import errors

    try:
        yield
    except errors.OfflineModeIsEnabled as error:
        raise StepError(
            "offline",
            "HF_HUB_OFFLINE is set, but some files are missing; unset it and run this again.",
        ) from error
    except errors.GatedRepoError as error:
        raise _gated(source) from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise StepError(
            "not_found",
            f"The hub has no {source.repo} at {revision}. Either the revision is wrong, or "
            "the token in HF_TOKEN is not valid.",
        ) from error
    except errors.HfHubHTTPError as error:
        raise _refused(source, error.response.status_code) from error
    except HTTPError as error:
        raise StepError(
            "hub_unreachable",
            f"The hub cannot be reached ({type(error).__name__}). Check the network, the "
            "proxy and HF_ENDPOINT; the same command continues the download.",
        ) from error
    except OSError as error:
        raise StepError("disk_error", f"The files cannot be written: {error}.") from error


def _refused(source: ModelSource, status: int) -> StepError:
    if status in (401, 403):
        return _gated(source)
    return StepError(
        "hub_error",
        f"The hub answered {status}. The same command continues the download.",
    )


def _gated(source: ModelSource) -> StepError:
    from huggingface_hub import get_token

    if get_token() is None:
        return StepError(
            "gated",
            f"Only people who accepted its terms can download {source.repo}. Sign in at the "
            "hub, accept the terms on the model's page, make an access token with read "
            "permission, and run this again with HF_TOKEN=THE_TOKEN.",
        )
    return StepError(
        "access_denied",
        f"The hub refuses {source.repo} with this token. Accept the model's terms with the "
        "account of the token, or set another token in HF_TOKEN.",
    )
