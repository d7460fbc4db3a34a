"""Redis, Mosquitto and RabbitMQ of this machine, on free ports and in directories of their own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.certificates import Authority
from tests.connect.postgres.server import free_port

USER, PASSWORD = "penstock", "s3cr3t-word"
_PATH = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin:/usr/lib/rabbitmq/bin"


def binary(name: str) -> str | None:
    return shutil.which(name, path=_PATH)


class Server:
    """`start` and `stop` as the test likes, on the same ports; `close` at the end.

    It has two ports, one of them with TLS, and a user with a password.
    """

    program = ""
    package = ""

    def __init__(self) -> None:
        found = binary(self.program)
        assert found is not None
        self.binary = found
        self.directory = Path(tempfile.mkdtemp(prefix=f"penstock-{self.program}-"))
        self.port, self.tls_port = free_port(), free_port()
        authority = Authority()
        certificate, key = authority.issue("127.0.0.1", "localhost")
        self.authority = self._write("authority.pem", authority.pem)
        self.certificate = self._write("certificate.pem", certificate)
        self.key = self._write("key.pem", key)
        self._process: subprocess.Popen[bytes] | None = None
        self._prepare()

    def _write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text)
        return path

    def _prepare(self) -> None:
        """Files of configuration."""

    def _command(self) -> Sequence[str]:
        raise NotImplementedError

    def _environment(self) -> dict[str, str]:
        return {}

    def start(self) -> None:
        with open(self.directory / "log", "ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                env={**os.environ, **self._environment()},
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # the server may be a child of a script
            )
        deadline = time.monotonic() + 240
        while not self.answers():
            text = (self.directory / "log").read_text()[-4000:]
            assert self._process.poll() is None, f"{self.program} ended:\n{text}"
            assert time.monotonic() < deadline, f"{self.program} does not answer:\n{text}"
            time.sleep(0.05)

    def answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 5).close()
            context = ssl.create_default_context(cafile=self.authority)
            with socket.create_connection(("127.0.0.1", self.tls_port), 5) as plain:
                context.wrap_socket(plain, server_hostname="127.0.0.1").close()
        except OSError:
            return False
        return True

    def stop(self, how: signal.Signals = signal.SIGKILL) -> None:
        assert self._process is not None
        try:
            os.killpg(self._process.pid, how)
        except ProcessLookupError:
            pass
        self._process.wait(60)
        self._process = None

    def close(self) -> None:
        if self._process is not None:
            self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


class RedisServer(Server):
    program, package = "redis-server", "redis-server"

    def _prepare(self) -> None:
        # `default` may do all without a password; what TLS is for is the other user's.
        self._write(
            "users.acl", f"user default on nopass ~* &* +@all\nuser {USER} on >{PASSWORD} ~* &* +@all\n"
        )

    def _command(self) -> Sequence[str]:
        return [
            self.binary, "--port", str(self.port), "--tls-port", str(self.tls_port), "--bind", "127.0.0.1",
            "--tls-cert-file", str(self.certificate), "--tls-key-file", str(self.key),
            "--tls-ca-cert-file", str(self.authority), "--tls-auth-clients", "no",
            "--aclfile", str(self.directory / "users.acl"), "--dir", str(self.directory),
            "--appendonly", "yes", "--appendfsync", "always", "--save", "",
        ]  # fmt: skip


class MosquittoServer(Server):
    program, package = "mosquitto", "mosquitto"
    acls = True

    def _prepare(self) -> None:
        done = subprocess.run(
            ["mosquitto_passwd", "-b", "-c", str(self.directory / "users"), USER, PASSWORD],
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        self._write("acl", f"topic readwrite #\ntopic deny forbidden/#\nuser {USER}\ntopic readwrite #\n")
        os.chmod(self.directory / "users", 0o600)
        self._write(
            "configuration",
            # Kept on disk after each change, so that a session outlives a kill.
            f"persistence true\npersistence_location {self.directory}/\nautosave_on_changes true\n"
            "autosave_interval 1\n"
            "max_queued_messages 0\nmax_packet_size 1000000\n"
            f"allow_anonymous true\npassword_file {self.directory}/users\n"
            + (f"acl_file {self.directory}/acl\n" if self.acls else "")
            + f"listener {self.port} 127.0.0.1\n"
            f"listener {self.tls_port} 127.0.0.1\ncertfile {self.certificate}\nkeyfile {self.key}\n",
        )

    def _command(self) -> Sequence[str]:
        if os.getuid() == 0:
            # It would give up root, and with that its directory.
            text = (self.directory / "configuration").read_text()
            if "user root" not in text:
                self._write("configuration", f"user root\n{text}")
        return [self.binary, "-c", str(self.directory / "configuration")]


class OpenMosquittoServer(MosquittoServer):
    """Without ACLs: those of 2.0.11 drop what arrives for a session that it has read from disk, until the
    client of that session is back."""

    acls = False


class RabbitServer(Server):
    program, package = "rabbitmq-server", "rabbitmq-server"

    def _prepare(self) -> None:
        self._epmd_port = free_port()
        self._epmd = subprocess.Popen(
            ["epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        # Not Debian's script, which changes to another user.
        real = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
        self.binary = str(real) if real.exists() else self.binary
        self._write(
            "rabbitmq.conf",
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\nlisteners.ssl.1 = 127.0.0.1:{self.tls_port}\n"
            f"ssl_options.cacertfile = {self.authority}\nssl_options.certfile = {self.certificate}\n"
            f"ssl_options.keyfile = {self.key}\nssl_options.verify = verify_none\n"
            f"default_user = {USER}\ndefault_pass = {PASSWORD}\ndisk_free_limit.absolute = 1MB\n"
            "raft.wal_max_size_bytes = 1000000\n",
        )
        self._write("plugins", "[].\n")

    def _command(self) -> Sequence[str]:
        return [self.binary]

    def _environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.directory),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"penstock{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(self.directory / "environment"),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "data"),
            "RABBITMQ_LOG_BASE": str(self.directory),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(self.directory / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
        }

    def close(self) -> None:
        super().close()
        self._epmd.kill()
        self._epmd.wait()
