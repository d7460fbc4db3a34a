"""A user's permissions on topics, as the brokers report them for that user.

The server creates a delegation token for the user (KIP-48, KIP-373), logs in with it, and asks for the
authorized operations of that login (KIP-430). So the brokers' own authorizer decides, including super users
and wildcards; the server never sees the user's Kafka password, and needs only one permission: CreateTokens on
the users.

Results are cached for a second. A cluster without an authorizer (SECURITY_DISABLED) restricts nobody.
"""

from __future__ import annotations

import base64
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import IntEnum

from penstock.client.brokers import Brokers
from penstock.client.errors import AuthenticationFailed, ClientError
from penstock.client.settings import ClientSettings
from penstock.errors import (
    ApiError,
    ClusterAuthorizationFailed,
    SecurityDisabled,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
    error_for_code,
)
from penstock.sql.errors import Unavailable
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

_DECISION_SECONDS = 1.0
_LIFE_MS = 3_600_000
_LIFE_PART = 0.8
_MOST_USERS = 100
_ACLS_SECONDS = 10.0
_ANY = 1
_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256")


class Operation(IntEnum):
    """Kafka's numbers."""

    READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8


class Topic:
    """The permissions of one user on one topic, as the brokers report them."""

    def __init__(self, operations: int, *, missing: bool = False) -> None:
        self._operations = operations
        self.missing = missing
        """The topic does not exist, and the user may know that."""

    def allows(self, operation: Operation) -> bool:
        return bool(self._operations >> operation & 1)


class UserRights:
    """The permissions of one user. Calls may come from any thread, and may take as long as the cluster
    does.
    """

    def __init__(self, name: str, session: Callable[[], Brokers], lock: threading.Lock) -> None:
        self.name = name
        self._session = session
        self._lock = lock
        self._known: dict[str, tuple[float, Topic]] = {}

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        wanted, now = set(names), time.monotonic()
        with self._lock:
            self._known = {name: one for name, one in self._known.items() if now - one[0] < _DECISION_SECONDS}
            unknown = sorted(wanted - self._known.keys())
            if unknown:
                for name, topic in self._ask(unknown).items():
                    self._known[name] = (now, topic)
            return {name: self._known[name][1] for name in wanted}

    def visible(self) -> frozenset[str]:
        """All topics that the user may describe."""
        with self._lock:
            answer = self._request(ApiKey.METADATA, Message(topics=None, allow_auto_topic_creation=False))
            return frozenset(each.name for each in answer.topics if not each.error_code)

    def may_create(self, topic: str) -> bool:
        """Whether the user may create the topic. Only validated: nothing is created."""
        new = Message(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        with self._lock:
            answer = self._request(
                ApiKey.CREATE_TOPICS, Message(topics=[new], timeout_ms=10_000, validate_only=True)
            )
        codes = (TopicAuthorizationFailed.code, ClusterAuthorizationFailed.code)
        return answer.topics[0].error_code not in codes

    def may_write_missing(self, topic: str) -> bool:
        """Whether the user may write to a missing topic: checked with a record that the broker rejects."""
        partition = Message(index=0, records=None)
        request = Message(
            transactional_id=None,
            acks=1,
            timeout_ms=1_000,
            topic_data=[Message(name=topic, partition_data=[partition])],
        )
        with self._lock:
            answer = self._request(ApiKey.PRODUCE, request, at_most=12)
        return bool(answer.responses[0].partition_responses[0].error_code != TopicAuthorizationFailed.code)

    def may_alter_cluster(self) -> bool:
        """ALTER on the cluster: needed for anything beyond topics, such as code and files on the server's
        machine.
        """
        with self._lock:
            request = Message(include_cluster_authorized_operations=True, endpoint_type=1)
            answer = self._request(ApiKey.DESCRIBE_CLUSTER, request)
        return not answer.error_code and bool(answer.cluster_authorized_operations >> Operation.ALTER & 1)

    def _ask(self, names: list[str]) -> dict[str, Topic]:
        request = Message(
            topics=[Message(name=name) for name in names],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        answer = self._request(ApiKey.METADATA, request)
        found = {name: Topic(0) for name in names}
        for each in answer.topics:
            if not each.error_code:
                found[each.name] = Topic(each.topic_authorized_operations)
            elif each.error_code == UnknownTopicOrPartition.code:
                found[each.name] = Topic(0, missing=True)
            elif each.error_code != TopicAuthorizationFailed.code:
                raise Unavailable(
                    f"the cluster does not say what User:{self.name} may do with `{each.name}` "
                    f"({error_for_code(each.error_code).kafka_name}): try again"
                )
        return found

    def _request(self, api: ApiKey, message: Message, at_most: int = 32767) -> Message:
        try:
            brokers = self._session()
            if api is ApiKey.CREATE_TOPICS:
                return brokers.controller().request(api, message, at_most=at_most)
            return brokers.any().request(api, message, at_most=at_most)
        except (ClientError, ApiError) as error:
            raise Unavailable(f"Cannot read the permissions of User:{self.name}: {error}") from error


class ClusterRights:
    """The permissions of all users in one cluster. `client` has Java's names, with the server's own login."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._own: Brokers | None = None
        self._has_acls: tuple[float, bool] | None = None
        self._users: OrderedDict[str, _User] = OrderedDict()

    def of(self, name: str | None) -> UserRights | None:
        """None if nobody is restricted: there is no login, or the cluster has no authorizer."""
        if name is None:
            return None
        with self._lock:
            if not self._acls():
                return None
            user = self._users.get(name)
            if user is None:
                user = self._users[name] = _User(name, self)
            self._users.move_to_end(name)
            gone = [self._users.popitem(last=False)[1]] if len(self._users) > _MOST_USERS else []
        for each in gone:
            each.close()
        return user.rights

    def close(self) -> None:
        with self._lock:
            users, self._users = list(self._users.values()), OrderedDict()
            if self._own is not None:
                self._own.close()
                self._own = None
        for each in users:
            each.close()

    def _acls(self) -> bool:
        now = time.monotonic()
        known = self._has_acls
        # A cluster gets or loses an authorizer only when its brokers restart.
        if known is not None and (known[1] or now - known[0] < _ACLS_SECONDS):
            return known[1]
        wanted = Message(
            resource_type_filter=_ANY,
            resource_name_filter=None,
            pattern_type_filter=_ANY,
            principal_filter=None,
            host_filter=None,
            operation=_ANY,
            permission_type=_ANY,
        )
        answer = self._ask(ApiKey.DESCRIBE_ACLS, wanted)
        found = bool(answer.error_code != SecurityDisabled.code)
        self._has_acls = (now, found)
        return found

    def _ask(self, api: ApiKey, message: Message) -> Message:
        """Asks with the server's own login; the lock is held."""
        try:
            if self._own is None:
                self._own = Brokers(ClientSettings.from_kafka(self._client))
            return self._own.any().request(api, message)
        except (ClientError, ApiError) as error:
            raise Unavailable(f"the cluster cannot be asked for permissions: {error}") from error

    def login(self, name: str) -> tuple[ClientSettings, float]:
        """The settings of a token login for the user, and its expiry (monotonic)."""
        request = Message(
            owner_principal_type="User", owner_principal_name=name, renewers=[], max_lifetime_ms=_LIFE_MS
        )
        with self._lock:
            answer = self._ask(ApiKey.CREATE_DELEGATION_TOKEN, request)
        if answer.error_code:
            raise Unavailable(_no_token(name, answer.error_code))
        settings = ClientSettings.from_kafka(self._client)
        own = settings.security
        mechanism = own.mechanism if own.mechanism in _MECHANISMS else _MECHANISMS[0]
        security = replace(
            own,
            mechanism=mechanism,
            username=answer.token_id,
            password=base64.b64encode(answer.hmac).decode(),
            is_token=True,
            tokens=None,
        )
        life = (answer.expiry_timestamp_ms - answer.issue_timestamp_ms) / 1000
        return replace(settings, security=security), time.monotonic() + life * _LIFE_PART


class _User:
    """A user's connection, created on demand, and again shortly before its token expires."""

    def __init__(self, name: str, cluster: ClusterRights) -> None:
        self._name = name
        self._cluster = cluster
        self._brokers: Brokers | None = None
        self._until = 0.0
        self._lock = threading.Lock()
        self.rights = UserRights(name, self._session, self._lock)

    def _session(self) -> Brokers:
        if self._brokers is None or time.monotonic() >= self._until:
            self._drop()
            settings, self._until = self._cluster.login(self._name)
            self._brokers = Brokers(settings)
        try:
            self._brokers.any()
        except AuthenticationFailed:
            # Somebody expired the token, or the brokers' secret changed: get a new one.
            self._drop()
            settings, self._until = self._cluster.login(self._name)
            self._brokers = Brokers(settings)
        return self._brokers

    def _drop(self) -> None:
        if self._brokers is not None:
            self._brokers.close()
            self._brokers = None

    def close(self) -> None:
        with self._lock:
            self._drop()


def _no_token(name: str, code: int) -> str:
    error = error_for_code(code).kafka_name
    hints = {
        "DELEGATION_TOKEN_AUTH_DISABLED": "set delegation.token.secret.key on the brokers",
        "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": "have this server log in with SASL, and not with a token",
        "DELEGATION_TOKEN_AUTHORIZATION_FAILED": (
            f"allow this server's user CreateTokens on User:{name} (kafka-acls --add --user-principal "
            f"User:{name} --operation CreateTokens)"
        ),
    }
    return (
        f"statements run as User:{name}, for whom the cluster gives no delegation token ({error}): "
        f"{hints.get(error, 'see the log of the brokers')}, or start the server with --run-as server"
    )
