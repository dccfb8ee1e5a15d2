"""Serve the site in a process of its own, on a socket that the parent has opened.

Started as `python -m ttsweb.http.web_process DESCRIPTOR GRACE_SECONDS`. The parent keeps it, so
requests wait instead of being refused while this process is started again.
"""

from __future__ import annotations

import socket
import sys
import warnings

import uvicorn


def main() -> None:
    descriptor, grace_seconds = int(sys.argv[1]), int(sys.argv[2])
    # Static files come from the packages; this folder is there only for who collects them.
    warnings.filterwarnings("ignore", message="No directory at", category=UserWarning)
    config = uvicorn.Config(
        "ttsweb.asgi:application",
        lifespan="off",  # Django has none
        log_config=None,  # the handlers of ttsweb.settings
        access_log=False,  # addresses may hold what must not stand in a log
        server_header=False,
        proxy_headers=False,  # the peer is who connects; `client_address` knows what a proxy says
        timeout_graceful_shutdown=grace_seconds,
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    main()
