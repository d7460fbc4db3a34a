"""The programs of examples/lectures, run as they are written: as the main program, with --bootstrap."""

from __future__ import annotations

import contextlib
import gc
import io
import runpy
import sys
from pathlib import Path
from unittest import mock

from kafka import KafkaConsumer, KafkaProducer

# kafka-python (3.0.12) can lose the request for a topic's metadata that is made while another is under way,
# and asks again when what it has is five minutes old (kafka/cluster.py, set_topics).
FRESH = {"metadata_max_age_ms": 1000}
DIRECTORY = Path(__file__).parents[2] / "examples" / "lectures"


def run_lecture(name: str, bootstrap: str) -> list[str]:
    """Runs it to its end in this process; returns the lines that it printed."""
    script = str(DIRECTORY / f"{name}.py")
    path = [str(DIRECTORY), *sys.path]  # as for `python examples/lectures/name.py`
    output = io.StringIO()
    with (
        mock.patch.object(sys, "argv", [script, "--bootstrap", bootstrap]),
        mock.patch.object(sys, "path", path),
        mock.patch.dict(KafkaConsumer.DEFAULT_CONFIG, FRESH),
        mock.patch.dict(KafkaProducer.DEFAULT_CONFIG, FRESH),
        contextlib.redirect_stdout(output),
    ):
        runpy.run_path(script, run_name="__main__")
    gc.collect()  # clients that the program left to its end
    return output.getvalue().splitlines()
