"""This server as a member of its Kafka group: it joins, waits for the assignment, sends heartbeats and
leaves.

It runs in its own thread, because a join waits until all members have joined. The event loop only learns who
the leader is; whether a leader may write is decided by the store's fencing, not here.

Registries and SQL servers choose their leaders with it, in groups of different protocol types.

The member is static (KIP-345), named by its URL: a server that restarts after a crash takes its previous
membership over at once, without waiting for the session to expire.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.client import ClientError, ClientSettings
from penstock.client.brokers import Brokers, check
from penstock.client.connection import Connection
from penstock.elected.membership import (
    DUPLICATE_URLS,
    PROTOCOL,
    PROTOCOL_TYPE,
    Assignment,
    Identity,
    assign,
    decode_assignment,
    decode_identity,
)
from penstock.errors import (
    ApiError,
    FencedInstanceId,
    IllegalGeneration,
    MemberIdRequired,
    PenstockError,
    RebalanceInProgress,
    UnknownMemberId,
)
from penstock.wire.api_keys import ApiKey
from penstock.wire.codec import Message

log = logging.getLogger(__name__)

_BACKOFF_SECONDS = 0.1
_MOST_BACKOFF_SECONDS = 1.0


class Elector:
    """One member of the group. `on_leader` is called in its thread; None means that there is no leader."""

    def __init__(
        self,
        settings: ClientSettings,
        group: str,
        identity: Identity,
        *,
        session_timeout_ms: int,
        protocol_type: str = PROTOCOL_TYPE,
        what: str = "registry",
        on_leader: Callable[[Identity | None], None],
        on_fenced: Callable[[str], None],
        on_members: Callable[[frozenset[str] | None], None] | None = None,
    ) -> None:
        """`on_members` gets the URLs of all members when the group has agreed on them, and None when this
        server is no longer a member. For groups that divide work among their members.
        """
        self._settings = settings
        self._group = group
        self._identity = identity
        self._protocol_type = protocol_type
        self._what = what
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = 3 * session_timeout_ms
        self._heartbeat_seconds = session_timeout_ms / 1000 / 3
        self._on_leader = on_leader
        self._on_fenced = on_fenced
        self._on_members = on_members
        self._is_member = False
        self._member_id = ""
        self._generation = -1
        self._rejoin = threading.Event()
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._leading = threading.Lock()
        """Guards what both threads change: the current leader, and when the coordinator last responded."""
        self._leads = False
        self._heard_at = time.monotonic()
        self._joining = False
        self._thread = threading.Thread(target=self._run, name=f"{what}-elector", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name=f"{what}-elector-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._watcher.start()

    def stop(self, timeout: float) -> None:
        """Leave the group, so that the others do not have to wait until this session expires."""
        self._stopping.set()
        self._wake.set()
        self._thread.join(timeout)

    def rejoin(self) -> None:
        """Have the group elect again, with this server as a member that does not lead."""
        self._identity = self._identity.led(False)
        self._rejoin.set()
        self._wake.set()

    def _watch(self) -> None:
        """Step down when the coordinator has not responded for the session timeout: by then another server
        may lead. In its own thread, because a broker request that hangs takes longer than that.
        """
        while not self._stopping.wait(self._heartbeat_seconds / 3):
            with self._leading:
                limit = self._rebalance_timeout_ms if self._joining else self._session_timeout_ms
                silent = time.monotonic() - self._heard_at
                if silent * 1000 < limit or not (self._leads or self._is_member):
                    continue
                if self._leads:
                    self._leads = False
                    self._identity = self._identity.led(False)
                    self._on_leader(None)
                self._no_member()
            self._rejoin.set()  # when it responds again, the group elects again
            log.warning("no response from group %s for %.0f s: resigned as leader", self._group, silent)

    def _no_member(self) -> None:
        if self._is_member and self._on_members is not None:
            self._is_member = False
            self._on_members(None)

    def _heard(self) -> None:
        with self._leading:
            self._heard_at = time.monotonic()

    def _run(self) -> None:
        backoff = _BACKOFF_SECONDS
        brokers = Brokers(self._settings)
        try:
            while not self._stopping.is_set():
                try:
                    connection = brokers.coordinator(self._group)
                    self._joining = True
                    try:
                        self._join(connection)
                    finally:
                        self._joining = False
                    backoff = _BACKOFF_SECONDS
                    self._stay(connection)
                except RebalanceInProgress:
                    continue
                except MemberIdRequired:
                    continue
                except FencedInstanceId:
                    self._on_fenced(
                        f"another {self._what} of the group {self._group} has the address "
                        f"{self._identity.url}: give each one its own with --advertised-url"
                    )
                    return
                except (UnknownMemberId, IllegalGeneration) as error:
                    log.info("no longer a member of %s (%s), rejoining", self._group, error)
                    self._member_id, self._generation = "", -1
                    with self._leading:
                        self._no_member()
                    self._identity = self._identity.led(False)  # another server may lead by now
                except (ClientError, ApiError) as error:
                    log.warning("could not reach group %s: %s", self._group, error)
                    self._wake.wait(backoff)
                    backoff = min(2 * backoff, _MOST_BACKOFF_SECONDS)
            self._leave(brokers)
        finally:
            brokers.close()

    def _join(self, connection: Connection) -> None:
        self._rejoin.clear()
        request = Message(
            group_id=self._group,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self._member_id,
            group_instance_id=self._identity.url,
            protocol_type=self._protocol_type,
            protocols=[Message(name=PROTOCOL, metadata=self._identity.encode())],
            reason=None,
        )
        answer = connection.request(ApiKey.JOIN_GROUP, request)
        self._heard()
        if answer.member_id:
            self._member_id = answer.member_id
        check(answer.error_code, f"joining {self._group}")
        self._generation = answer.generation_id
        assignments: list[Message] = []
        if answer.leader == answer.member_id:
            assignment = _assignment_for(answer, self._identity.url)
            if assignment.error == DUPLICATE_URLS:
                log.error("two members of %s have the same address: see --advertised-url", self._group)
            if self._on_members is None:
                assignment = replace(assignment, members=())
            data = assignment.encode()
            assignments = [Message(member_id=each.member_id, assignment=data) for each in answer.members]
        self._sync(connection, assignments)

    def _sync(self, connection: Connection, assignments: list[Message]) -> None:
        request = Message(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            group_instance_id=self._identity.url,
            protocol_type=self._protocol_type,
            protocol_name=PROTOCOL,
            assignments=assignments,
        )
        answer = connection.request(ApiKey.SYNC_GROUP, request)
        check(answer.error_code, f"the assignment of {self._group}")
        try:
            assignment = decode_assignment(answer.assignment)
        except ValueError as error:
            log.error("could not read the assignment of %s: %s", self._group, error)
            return
        leader = assignment.leader if assignment.error != DUPLICATE_URLS else None
        if leader is not None and not leader.is_as_safe_as(self._identity.url):
            log.error(
                "%s of group %s would receive logins in plain text: ignoring it as leader of %s",
                leader.url, self._group, self._identity.url,
            )  # fmt: skip
            leader = None
        leads = leader is not None and leader.same(self._identity)
        with self._leading:
            self._identity = self._identity.led(leads)
            self._leads, self._heard_at = leads, time.monotonic()
            self._on_leader(leader)
            if self._on_members is not None:
                self._is_member = True
                self._on_members(frozenset(assignment.members))

    def _stay(self, connection: Connection) -> None:
        """Send heartbeats until the group changes. Raises the error that ends the membership."""
        request_fields: dict[str, Any] = {
            "group_id": self._group,
            "generation_id": self._generation,
            "member_id": self._member_id,
            "group_instance_id": self._identity.url,
        }
        while not self._stopping.is_set():
            self._wake.wait(self._heartbeat_seconds)
            self._wake.clear()
            if self._stopping.is_set():
                return
            if self._rejoin.is_set():
                return
            answer = connection.request(ApiKey.HEARTBEAT, Message(**request_fields))
            check(answer.error_code, f"the heartbeat of {self._group}")
            self._heard()

    def _leave(self, brokers: Brokers) -> None:
        if not self._member_id:
            return
        member = Message(
            member_id=self._member_id, group_instance_id=self._identity.url, reason="shutting down"
        )
        request = Message(group_id=self._group, member_id=self._member_id, members=[member])
        for _ in range(2):  # an idle connection may have been closed
            try:
                brokers.coordinator(self._group).request(ApiKey.LEAVE_GROUP, request)
                return
            except PenstockError as error:
                log.info("leaving %s: %s", self._group, error)


def _assignment_for(answer: Message, by: str) -> Assignment:
    members: dict[str, Identity] = {}
    for each in answer.members:
        try:
            members[each.member_id] = decode_identity(each.metadata)
        except ValueError as error:
            log.error("member %s cannot become leader: %s", each.member_id, error)
    return assign(members, by)
