"""Give single threads of the process their own number of torch's threads."""

from __future__ import annotations

import threading

import torch


def set_own_threads(num_threads: int) -> None:
    """Have operations called by this thread use so many threads; 0 leaves it as it is.

    Torch keeps the number for each thread, and one more that threads begin with: the latter is
    left as it was. To be called before this thread does anything else with torch.
    """
    if not num_threads:
        return
    others = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    restoring = threading.Thread(target=torch.set_num_threads, args=(others,))
    restoring.start()
    restoring.join()
