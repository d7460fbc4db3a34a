"""A real standalone Spark cluster on this machine: a master and workers, each a JVM, on loopback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.spark.java import find_java_home

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
START_TIMEOUT_S = 60.0
_LOG4J = """\
rootLogger.level = info
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %c{1}: %m%n
"""


@dataclass(frozen=True)
class StandaloneCluster:
    """`url` is what goes to `--master`."""

    url: str
    directory: Path

    def executors_started(self) -> list[str]:
        """`app/executor` of each executor that a worker has started."""
        return [f"{path.parent.name}/{path.name}" for path in self.directory.glob("worker-*/work/*/*")]

    def logs(self) -> str:
        return "\n".join(
            f"== {path.name}\n{path.read_text()[-2000:]}" for path in self.directory.glob("*.log")
        )


@contextmanager
def standalone_cluster(directory: Path, workers: int = 2, cores: int = 1) -> Iterator[StandaloneCluster]:
    """Runs until the block ends; each process is in a group of its own and gone afterwards, executors too."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        master = _start(
            processes, directory, "master", MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
        )
        found = _wait_for(master, r"Starting Spark master at (spark://\S+)")
        url = found.group(1)
        logs = []
        for number in range(workers):
            arguments = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
            arguments += ["--cores", str(cores), "--memory", "1g", url]
            logs.append(_start(processes, directory, f"worker-{number}", WORKER, *arguments))
        for log in logs:
            _wait_for(log, r"Successfully registered with master")
        yield StandaloneCluster(url, directory)
    finally:
        for process in reversed(processes):
            _end(process)


def _start(
    processes: list[subprocess.Popen[bytes]], directory: Path, name: str, main: str, *arguments: str
) -> Path:
    import pyspark

    home = Path(pyspark.__file__).parent
    work = directory / name / "work"
    work.mkdir(parents=True)
    configuration = directory / "conf"
    configuration.mkdir(exist_ok=True)
    (configuration / "log4j2.properties").write_text(_LOG4J)
    environment = {
        **os.environ,
        "JAVA_HOME": str(find_java_home(os.environ)),
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(configuration),
        "SPARK_WORKER_DIR": str(work),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    log = directory / f"{name}.log"
    with open(log, "wb") as output:
        processes.append(
            subprocess.Popen(
                [str(home / "bin" / "spark-class"), main, *arguments],
                env=environment,
                stdout=output,
                stderr=output,
                cwd=directory / name,
                start_new_session=True,
            )
        )
    return log


def _wait_for(log: Path, pattern: str) -> re.Match[str]:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if found := re.search(pattern, log.read_text()):
            return found
        time.sleep(0.05)
    raise TimeoutError(f"{log.name} never said {pattern!r}:\n{log.read_text()[-3000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the whole group, so that a worker's executors go with it; SIGKILL to what is left."""
    for number, wait in ((signal.SIGTERM, 15), (signal.SIGKILL, 15)):
        try:
            os.killpg(process.pid, number)
            process.wait(wait)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
