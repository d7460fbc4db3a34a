"""Child processes that end with their parent, also when that is killed (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def _prctl() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    try:
        function: Callable[..., int] = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None
    return function


# Looked up before the fork: after it, loading a library may hang.
_PRCTL = _prctl()


def with_parent(number: int = signal.SIGKILL) -> Callable[[], None]:
    """A `preexec_fn`: the child gets this signal when the thread that started it ends."""
    parent = os.getpid()

    def ask_kernel() -> None:
        if _PRCTL is None:
            return
        _PRCTL(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:  # it ended before it was asked for
            os._exit(1)

    return ask_kernel
