"""What all tests share: no test asserts a time; warnings of the clients under test are not ours to mend."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts background jobs with SIGINT ignored, and children inherit that; some tests send it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # kafka-python reads its schemas with functions that importlib.resources has since replaced.
    for message in ("read_text is deprecated", "open_text is deprecated"):
        config.addinivalue_line("filterwarnings", f"ignore:{message}:DeprecationWarning")
