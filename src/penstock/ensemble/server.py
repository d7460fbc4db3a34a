"""One ZooKeeper server: its configuration, its command line, and the process until it answers.

ZooKeeper is the real one. PySpark ships it (`zookeeper`, `zookeeper-jute` and what they need), so nothing
has to be downloaded; where PySpark is not installed, the jars of Debian's `zookeeper` package serve.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from penstock.errors import PenstockError, install_extra
from penstock.processes import with_parent

MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
# Each jar that the server loads, by the start of its name.
_JARS = (
    "zookeeper-", "netty-", "slf4j-api", "log4j-", "metrics-core", "snappy-java", "commons-io", "commons-cli",
    "commons-lang", "jackson-", "audience-annotations",
)  # fmt: skip
_DEBIAN = Path("/usr/share/java")
LARGEST_MESSAGE = 8 << 20
"""Bytes of one change: a topic with ten thousand partitions. ZooKeeper's own default is one megabyte."""
_HEAP = "-Xmx256m"
_LOGGING = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


class ZooKeeperError(PenstockError):
    """A ZooKeeper server cannot be started, or does not answer."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of an ensemble: where its peers reach it, and where clients do."""

    id: int
    host: str
    quorum_port: int
    election_port: int
    client_port: int

    @property
    def line(self) -> str:
        ports = f"{self.quorum_port}:{self.election_port}"
        return f"server.{self.id}={self.host}:{ports};{self.host}:{self.client_port}"


@dataclass(frozen=True, slots=True)
class ServerTls:
    """A server that speaks TLS alone, to clients that show a certificate of `truststore`. PEM files."""

    keystore: Path
    truststore: Path

    @property
    def lines(self) -> list[str]:
        return [
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"ssl.keyStore.location={self.keystore}",
            "ssl.keyStore.type=PEM",
            f"ssl.trustStore.location={self.truststore}",
            "ssl.trustStore.type=PEM",
            "ssl.clientAuth=need",
        ]

    def client(self) -> ssl.SSLContext:
        """For who asks the server whether it serves: it has the same certificate."""
        context = ssl.create_default_context(cafile=self.truststore)
        context.load_cert_chain(self.keystore)
        return context


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """A server alone, or one member of `members` by its id."""

    data: Path
    port: int
    host: str = "127.0.0.1"
    id: int = 1
    members: Sequence[Member] = ()
    tick_ms: int = 500
    tls: ServerTls | None = None
    """Of a server alone: its only port for clients."""

    def properties(self) -> str:
        lines = [
            f"dataDir={self.data}",
            f"tickTime={self.tick_ms}",
            "initLimit=20",
            "syncLimit=10",
            # Sessions may be as short as two ticks and as long as a broker asks for.
            f"minSessionTimeout={2 * self.tick_ms}",
            "maxSessionTimeout=120000",
            "admin.enableServer=false",
            "maxClientCnxns=0",
            "autopurge.purgeInterval=1",
            "4lw.commands.whitelist=srvr,ruok,mntr",
        ]
        if self.members:
            lines += ["standaloneEnabled=false", "reconfigEnabled=true", *(one.line for one in self.members)]
        elif self.tls is not None:
            lines += [
                f"secureClientPort={self.port}",
                f"secureClientPortAddress={self.host}",
                *self.tls.lines,
            ]
        else:
            lines += [f"clientPort={self.port}", f"clientPortAddress={self.host}"]
        return "\n".join(lines) + "\n"


def classpath(debian: Path = _DEBIAN) -> list[Path]:
    """The jars of the server: PySpark's, or Debian's."""
    spec = importlib.util.find_spec("pyspark")
    directory = debian
    if spec is not None and spec.submodule_search_locations:
        directory = Path(next(iter(spec.submodule_search_locations))) / "jars"
    found = sorted(jar for jar in directory.glob("*.jar") if jar.name.startswith(_JARS))
    if not any(jar.name.startswith("zookeeper") for jar in found):
        raise ZooKeeperError(
            f"ZooKeeper is not installed: {install_extra('spark')}, or `apt-get install zookeeper`"
        )
    return found


def command(spec: ServerSpec, java: Path) -> list[str]:
    """Writes the configuration below the data directory; the command line of the server."""
    spec.data.mkdir(parents=True, exist_ok=True)
    configuration = spec.data / "zoo.cfg"
    configuration.write_text(spec.properties(), encoding="utf-8")
    (spec.data / "myid").write_text(f"{spec.id}\n", encoding="utf-8")
    logging_file = spec.data / "log4j2.properties"
    logging_file.write_text(_LOGGING, encoding="utf-8")
    return [
        str(java),
        _HEAP,
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Djava.net.preferIPv4Stack=true",
        f"-Dlog4j2.configurationFile={logging_file}",
        "-Dzookeeper.extendedTypesEnabled=true",
        f"-Djute.maxbuffer={LARGEST_MESSAGE}",
        "-cp",
        os.pathsep.join(map(str, classpath())),
        MAIN_CLASS,
        str(configuration),
    ]


class ZooKeeperProcess:
    """A server as a child of this process; `with` stops it. `start` returns when it answers."""

    def __init__(
        self, spec: ServerSpec, environ: Mapping[str, str] | None = None, *, ends_with_parent: bool = False
    ) -> None:
        """`ends_with_parent`: also when this process is killed."""
        self.spec = spec
        self._prepare = with_parent() if ends_with_parent else None
        self._environ = os.environ if environ is None else environ
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.spec.host}:{self.spec.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, timeout: float = 60, *, wait: bool = True) -> ZooKeeperProcess:
        from penstock.spark.java import find_java_home

        java = find_java_home(self._environ) / "bin" / "java"
        log = self.spec.data / "zookeeper.log"
        arguments = command(self.spec, java)
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=self._prepare,
            )
        if wait:
            self.wait_until_serving(timeout)
        return self

    def wait_until_serving(self, timeout: float = 60) -> None:
        """A member of an ensemble serves when the ensemble has a leader."""
        end = time.monotonic() + timeout
        tls = None if self.spec.tls is None else self.spec.tls.client()
        while not is_serving(self.spec.host, self.spec.port, tls):
            if self._process is None or self._process.poll() is not None:
                raise ZooKeeperError(
                    f"ZooKeeper exited during its start; see {self.spec.data / 'zookeeper.log'}"
                )
            if time.monotonic() > end:
                self.kill()
                raise ZooKeeperError(f"ZooKeeper at {self.address} does not answer after {timeout:.0f} s")
            time.sleep(0.05)

    def signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def stop(self, timeout: float = 10) -> None:
        self.signal(signal.SIGTERM)
        if self._process is not None:
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> ZooKeeperProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def is_serving(host: str, port: int, tls: ssl.SSLContext | None = None) -> bool:
    """Whether a server there answers clients: alone, or as part of an ensemble that has a leader."""
    try:
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection((host, port), timeout=2))
            if tls is not None:
                connection = stack.enter_context(tls.wrap_socket(connection, server_hostname=host))
            connection.sendall(b"srvr")
            answer = b""
            while part := connection.recv(4096):
                answer += part
    except OSError:
        return False
    return b"Mode:" in answer


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
