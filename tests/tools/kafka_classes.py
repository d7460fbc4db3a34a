"""The classes of Kafka's tools in an archive that Java maps instead of loading each: half of a tool's start.

It is made once for a Java, in build/. Where Java cannot make or use it, tools start without it.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from pathlib import Path

from penstock.testing import PenstockBroker
from tests.tools.kafka_jars import CACHE, JVM_FLAGS, LIBRARIES

# An archive that does not fit is left aside; that is no reason for words among a tool's output.
_QUIET = ["-Xlog:disable", "-Xlog:all=error:stderr"]
_CLASS_PATH = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{LIBRARIES}/*"]


def archive() -> Path:
    """Where the archive for this machine's Java is, or would be."""
    java = Path(shutil.which("java") or "java").resolve()
    made_of = f"{java} {java.stat().st_mtime_ns} {LIBRARIES}"
    return CACHE / f"classes-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}.jsa"


def command() -> list[str]:
    """The start of a command that runs one of Kafka's programs."""
    found = archive()
    mapped = [f"-XX:SharedArchiveFile={found}", *_QUIET] if found.exists() else []
    return ["java", *JVM_FLAGS, *mapped, *_CLASS_PATH]


def make() -> None:
    """Makes the archive, unless it is there: runs the tool that uses most of Kafka's classes."""
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive().exists():
            return
        beside = archive().with_suffix(".new")
        with PenstockBroker() as broker:
            broker.create_topic("t")
            tool = ["kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, "--describe"]
            subprocess.run(
                ["java", *JVM_FLAGS, f"-XX:ArchiveClassesAtExit={beside}", *_QUIET, *_CLASS_PATH]
                + [*tool, "--entity-type", "topics", "--entity-name", "t"],
                capture_output=True,
                timeout=240,
            )
        if beside.exists():
            beside.replace(archive())
