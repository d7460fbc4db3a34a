"""What all tests share: no test asserts a time; warnings of the clients under test are not ours to mend.

One Spark serves all tests of a pytest process, and one SQL server: each takes longer to start than most tests
take. `tests/scheduling.py` has the tests that use the same one run by one process.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests import scheduling
from tests.repetitions import LONG, times

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

# Properties that set no number of their own.
settings.register_profile("penstock", deadline=None, max_examples=times(50, 500))
settings.load_profile("penstock")


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts background jobs with SIGINT ignored, and children inherit that; some tests send it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # kafka-python reads its schemas with functions that importlib.resources has since replaced.
    for message in ("read_text is deprecated", "open_text is deprecated"):
        config.addinivalue_line("filterwarnings", f"ignore:{message}:DeprecationWarning")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The collected tests and their modules live as long as the process: Python's garbage collector need not
    look at these millions of objects again and again, which takes a third of the time of short tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A SparkSession on local[2] that all tests share: none of them stops it or leaves a query running."""
    import penstock.spark
    from tests.spark import class_archive

    scratch = tmp_path_factory.mktemp("spark")
    session = penstock.spark.session(
        "penstock-tests",
        master="local[2]",
        conf={
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.local.dir": str(scratch),
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={scratch}",
            # As the SQL server has it.
            "spark.scheduler.mode": "FAIR",
            **class_archive.SHARED_CONF,
        },
    )
    yield session
    for query in session.streams.active:
        query.stop()
    session.stop()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker(pytest.mark.repeated)
    if not LONG and not config.option.markexpr:
        # Unless they are all that was asked for.
        left = [item for item in items if item.get_closest_marker("long")]
        if left and len(left) < len(items):
            config.hook.pytest_deselected(items=left)
            items[:] = [item for item in items if not item.get_closest_marker("long")]
    items.sort(key=lambda item: scheduling.rank(item.path))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    return scheduling.scheduler(config, log) if config.getvalue("dist") == "loadgroup" else None
