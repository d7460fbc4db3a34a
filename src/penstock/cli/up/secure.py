"""`penstock up --secure`: the authority, users and passwords of a cluster on this machine, in DATA/secure.

They are made at the first start and reused from then on. Brokers serve TLS with SCRAM logins and ACLs (deny
by default); the registry and Connect HTTPS with a password; ZooKeeper TLS to brokers that show a certificate
of an authority of its own. Files with secrets are readable by their owner alone, and no secret is an argument
of a process.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from penstock.admin.access.users import DEFAULT_MECHANISM, known_users, set_password
from penstock.admin.cluster import Cluster
from penstock.admin.wire_client import WireCluster, check
from penstock.cli.failure import CommandFailed
from penstock.cli.options.secret_files import write_secret
from penstock.config.properties import parse_properties
from penstock.credentials.users_file import hashed
from penstock.ensemble import ServerTls
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

PROTOCOL = "SASL_SSL"
ADMIN, BROKER, REGISTRY, CONNECT, ZOOKEEPER = "admin", "broker", "registry", "connect", "zookeeper"
TOKENS = "delegation-tokens"
_SECRETS = (ADMIN, BROKER, REGISTRY, CONNECT, ZOOKEEPER, TOKENS)
_CA_DAYS, _CERTIFICATE_DAYS = 3650, 365
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
_OWN_SETTINGS = (
    "listeners", "listener.security.protocol.map", "inter.broker.listener.name", "log.dirs", "log.dir",
    "allow.everyone.if.no.acl.found",
)  # fmt: skip
_TOPIC, _GROUP, _TRANSACTIONAL_ID = 2, 3, 5
_LITERAL, _PREFIXED = 3, 4
_ALL, _ALLOW, _DENY = 2, 3, 2
_RESOURCES = {
    REGISTRY: (
        (_TOPIC, "_schemas", _LITERAL, _ALLOW),
        (_GROUP, "schema-registry", _LITERAL, _ALLOW),
        (_GROUP, "penstock-registry", _LITERAL, _ALLOW),
        (_TRANSACTIONAL_ID, "penstock-registry-", _PREFIXED, _ALLOW),
    ),
    # Connectors read and write as their worker: what the administrator has them do is any topic, but not
    # those in which the servers keep their own state.
    CONNECT: (
        (_TOPIC, "*", _LITERAL, _ALLOW),
        (_TOPIC, "_schemas", _LITERAL, _DENY),
        (_TOPIC, "__", _PREFIXED, _DENY),
        (_GROUP, "connect-", _PREFIXED, _ALLOW),
        (_GROUP, "penstock-connect-", _PREFIXED, _ALLOW),
        (_GROUP, "penstock-worker", _LITERAL, _ALLOW),
        (_TRANSACTIONAL_ID, "connect-", _PREFIXED, _ALLOW),
    ),
}
"""What each server's user may do, and may not."""


class SecureSite:
    """What the directory holds, for brokers, ZooKeeper, registry and clients."""

    protocol = PROTOCOL

    def __init__(self, directory: Path, hosts: Sequence[str]) -> None:
        from penstock.cli.access.authority import Authority

        self.directory = directory.absolute()
        self.directory.mkdir(parents=True, exist_ok=True)
        for private in (self.directory.parent, self.directory):
            private.chmod(0o700)
        authority = Authority.open(self.directory, "Penstock", _CA_DAYS)
        self._ca = authority.certificate_file
        self._keystore = _certificate(authority, self.directory / "server.pem", hosts)
        self._passwords = self._read_passwords()

    @property
    def client_config(self) -> Path:
        """Names of librdkafka, which every command here takes as well; logged in as the administrator."""
        return self.directory / "client.properties"

    @property
    def java_config(self) -> Path:
        """The same for Kafka's Java clients, which take JAAS and nothing else; librdkafka takes none."""
        return self.directory / "client-java.properties"

    @property
    def environment(self) -> Path:
        """For a shell: all commands, also those that ask the registry, with no further options."""
        return self.directory / "client.env"

    # Servers

    def broker_settings(self) -> dict[str, str]:
        """All but the listeners' addresses."""
        password = self._passwords[BROKER]
        return {
            "penstock.metrics.auth.file": str(self._users_file("metrics")),
            "penstock.metrics.ssl.keystore.location": str(self._keystore),
            "security.inter.broker.protocol": PROTOCOL,
            "ssl.keystore.location": str(self._keystore),
            "ssl.truststore.location": str(self._ca),
            "sasl.enabled.mechanisms": DEFAULT_MECHANISM,
            "sasl.mechanism.inter.broker.protocol": DEFAULT_MECHANISM,
            f"listener.name.{PROTOCOL.lower()}.{DEFAULT_MECHANISM.lower()}.sasl.jaas.config": (
                f'{_MODULE} username="{BROKER}" password="{password}";'
            ),
            "delegation.token.secret.key": self._passwords[TOKENS],
            "authorizer.class.name": _AUTHORIZER,
            "super.users": f"User:{ADMIN};User:{BROKER}",
        }

    def zookeeper(self, host: str) -> tuple[ServerTls, dict[str, str]]:
        """How ZooKeeper serves, and the settings with which brokers reach it."""
        from penstock.cli.access.authority import Authority

        # Of its own: a certificate that was issued to a client of the brokers opens nothing here.
        authority = Authority.open(self.directory / "zookeeper", "Penstock ZooKeeper", _CA_DAYS)
        keystore = _certificate(authority, self.directory / "zookeeper" / "zookeeper.pem", [host])
        return ServerTls(keystore, authority.certificate_file), {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.keystore.location": str(keystore),
            "zookeeper.ssl.truststore.location": str(authority.certificate_file),
            "penstock.zookeeper.auth": f"{BROKER}:{self._passwords[ZOOKEEPER]}",
        }

    def server_words(self, user: str) -> list[str]:
        """Options of the registry or Connect: HTTPS for the administrator, and a user of its own."""
        users = self._users_file(user)
        config = self.directory / f"{user}.properties"
        write_secret(config, _properties(self._login(user)))
        keystore, ca = str(self._keystore), str(self._ca)
        return [
            *("--client-config", str(config), "--auth-file", str(users)),
            *("--tls-cert", keystore, "--tls-key", keystore, "--tls-ca", ca),
        ]

    def _users_file(self, server: str) -> Path:
        """The users of a server's HTTP port: the administrator."""
        users = self.directory / f"{server}-users"
        write_secret(users, f"{ADMIN}: {hashed(self._passwords[ADMIN])}, admin\n")
        return users

    def console_options(self) -> tuple[list[str], dict[str, str]]:
        """Options of the console, and secrets for its environment: HTTPS and a login for the administrator,
        as whom it is a client of brokers, registry and Connect."""
        users = self._users_file("console")
        config = self.directory / "console.properties"
        write_secret(config, _properties(self._login(ADMIN)))
        keystore = str(self._keystore)
        environment = {}
        for server in (REGISTRY, CONNECT):
            environment[f"PENSTOCK_{server.upper()}_USER"] = f"{ADMIN}:{self._passwords[ADMIN]}"
            environment[f"PENSTOCK_{server.upper()}_CA"] = str(self._ca)
        words = ["--client-config", str(config), "--auth-file", str(users)]
        return [*words, "--tls-cert", keystore, "--tls-key", keystore], environment

    # Users and clients

    def provision(self, bootstrap: str) -> None:
        """Logged in as a broker: the other users where they are missing, and what they may do."""
        cluster = Cluster(bootstrap, self._login(BROKER), timeout=60.0)
        with WireCluster(cluster) as wire:
            known = known_users(wire)
            for user in (ADMIN, REGISTRY, CONNECT):
                if user not in known:
                    set_password(wire, user, self._passwords[user])
            creations = [
                Message(
                    resource_type=kind,
                    resource_name=name,
                    resource_pattern_type=pattern,
                    principal=f"User:{user}",
                    host="*",
                    operation=_ALL,
                    permission_type=permission,
                )
                for user, resources in _RESOURCES.items()
                for kind, name, pattern, permission in resources
            ]
            answer = wire.brokers()[0].request(ApiKey.CREATE_ACLS, Message(creations=creations))
            for result in answer.results:
                check(result.error_code, result.error_message)

    def login(self) -> dict[str, str]:
        """Of a broker, in librdkafka's names."""
        return self._login(BROKER)

    def write_clients(self, state: Mapping[str, object]) -> dict[str, str]:
        """The files for clients of what is in the ready file; what that says of them."""
        bootstrap = str(state["bootstrap"])
        where = {"bootstrap.servers": bootstrap}
        write_secret(self.client_config, _properties({**where, **self._login(ADMIN)}))
        password = self._passwords[ADMIN]
        java = {
            **where,
            "security.protocol": PROTOCOL,
            "sasl.mechanism": DEFAULT_MECHANISM,
            "sasl.jaas.config": f'{_MODULE} username="{ADMIN}" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._ca),
        }
        write_secret(self.java_config, _properties(java))
        environment = {"PENSTOCK_BOOTSTRAP": bootstrap, "PENSTOCK_CLIENT_CONFIG": str(self.client_config)}
        for server in (REGISTRY, CONNECT):
            if server in state:
                name = f"PENSTOCK_{server.upper()}"
                environment |= {
                    name: str(state[server]),
                    f"{name}_USER": f"{ADMIN}:{password}",
                    f"{name}_CA": str(self._ca),
                }
        write_secret(self.environment, "".join(f"export {k}='{v}'\n" for k, v in environment.items()))
        return {
            "client_config": str(self.client_config),
            "client_config_java": str(self.java_config),
            "client_env": str(self.environment),
            "ca": str(self._ca),
        }

    def _login(self, user: str) -> dict[str, str]:
        return {
            "security.protocol": PROTOCOL,
            "sasl.mechanism": DEFAULT_MECHANISM,
            "sasl.username": user,
            "sasl.password": self._passwords[user],
            "ssl.ca.location": str(self._ca),
        }

    def _read_passwords(self) -> dict[str, str]:
        path = self.directory / "passwords.properties"
        found = parse_properties(path.read_text(encoding="utf-8")) if path.exists() else {}
        missing = [user for user in _SECRETS if not found.get(user)]
        if missing:
            found |= {user: secrets.token_urlsafe(24) for user in missing}
            write_secret(path, _properties(found))
        return found


def check_settings(given: Mapping[str, str], own: Mapping[str, str]) -> None:
    """What --secure sets is not said twice: half of it would be no protection."""
    for name in given:
        if name in own or name in _OWN_SETTINGS:
            raise click.UsageError(
                f"--set {name}: --secure sets it. For other settings start each broker with `penstock broker`"
            )


def _certificate(authority: object, path: Path, hosts: Sequence[str]) -> Path:
    from penstock.cli.access.authority import Authority

    assert isinstance(authority, Authority)
    if not authority.is_good(path, hosts):
        authority.issue(path, hosts[0], hosts, _CERTIFICATE_DAYS)
    return path


def _properties(settings: Mapping[str, str]) -> str:
    for name, value in settings.items():
        if "\n" in value or "\\" in value:
            raise CommandFailed(f"{name} has a backslash or a line end: use another --data directory.")
    return "".join(f"{name}={value}\n" for name, value in settings.items())
