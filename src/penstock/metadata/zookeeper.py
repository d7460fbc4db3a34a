"""The metadata store of a cluster, in ZooKeeper (with kazoo): connection, session, reads and writes.

`zookeeper_mirror` follows the tree with watches; `zookeeper_names` maps the paths of the store to those in
ZooKeeper. kazoo responds in its own threads; everything that the caller sees happens on its event loop, in
the order of ZooKeeper's responses.

    SUSPENDED  the connection is lost; the session, and with it our ephemeral nodes, may still exist
    LOST       the session has expired: our ephemeral nodes are deleted, or will be soon
    CONNECTED  reads and writes work again; the mirror has caught up
"""

from __future__ import annotations

import asyncio
import enum
import logging
import time
import warnings
from collections.abc import Callable, Collection, Sequence
from ipaddress import ip_address
from typing import Any

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import ACL, Permissions, make_acl, make_digest_acl

from penstock.errors import ConfigError
from penstock.metadata.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Op,
    Set,
    StoreUnavailable,
    Versioned,
    WatchCallback,
)
from penstock.metadata.zookeeper_mirror import Mirror
from penstock.metadata.zookeeper_names import (
    DIRECTORIES,
    OLD_NODE,
    ROOT_NODES,
    UNWATCHED,
    directory_of,
    there,
)
from penstock.metadata.zookeeper_tls import TlsHandler

_RETRY_SECONDS = 0.2
_ANYONE_READS = make_acl("world", "anyone", read=True)

log = logging.getLogger(__name__)

_PREPARE_RETRY_SECONDS = 0.1


def _quiet_logger() -> logging.Logger:
    """The logger for kazoo, which at DEBUG logs whole requests, including the password of the login and the
    credentials and tokens in nodes. Its level cannot be changed at run time: no list of loggers has it."""
    quiet = logging.Logger("penstock.zookeeper.client", logging.ERROR)
    quiet.parent = logging.getLogger("penstock")
    return quiet


def _is_loopback(server: str) -> bool:
    """Whether a server (host:port, [address]:port or host) is on the loopback interface."""
    host = server.strip().rpartition(":")[0] or server.strip()
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class SessionState(enum.Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


SessionCallback = Callable[[SessionState], None]


class ZooKeeperStore:
    """Call `open()` first. `nodes` are those of the mirror."""

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int = 18_000,
        connection_timeout_ms: int = 18_000,
        auth: str | None = None,
        tls: bool = False,
        keystore: str | None = None,
        truststore: str | None = None,
    ) -> None:
        """`auth` is "user:password": only clients with these can read and change the nodes.

        For `tls`, keystore and truststore are PEM files: our key and certificate, and the trusted
        authorities.
        """
        self._address = hosts
        if (
            auth is not None
            and not tls
            and not all(_is_loopback(one) for one in hosts.split("/")[0].split(","))
        ):
            log.warning(
                "penstock.zookeeper.auth: the password crosses the network to %s in plain text; "
                "set zookeeper.ssl.client.enable=true",
                hosts,
            )
        self._acl: list[ACL] = [] if auth is None else [make_digest_acl(*auth.split(":", 1), all=True)]
        self._connection_timeout = connection_timeout_ms / 1000
        self._client = KazooClient(
            hosts,
            timeout=session_timeout_ms / 1000,
            default_acl=self._acl or None,
            auth_data=None if auth is None else [("digest", auth)],
            use_ssl=tls,
            handler=TlsHandler(keystore, truststore) if tls else None,
            connection_retry=KazooRetry(
                max_tries=-1, delay=0.05, backoff=2, max_delay=1, ignore_expire=False
            ),
            logger=_quiet_logger(),
        )
        self._mirror = Mirror(self._client, self._ask)
        self.nodes = self._mirror.nodes
        self.unannounced = self._mirror.unannounced
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_session: list[SessionCallback] = []
        self._walking: asyncio.Task[None] | None = None
        self._state = SessionState.SUSPENDED
        self._opened = False
        self._changes = 0  # number of changes of the session state
        self._closed = False

    @property
    def state(self) -> SessionState:
        return self._state

    async def open(self) -> None:
        """Connect, and read the tree into the mirror. StoreUnavailable if no server responds in time."""
        self._loop = asyncio.get_running_loop()
        self._client.add_listener(self._listen)
        try:
            await self._loop.run_in_executor(None, self._start)
        except ConfigError:
            await self.close()
            raise
        except NoAuthError as error:
            await self.close()
            raise self._unavailable("/", error) from None
        except (KazooException, self._client.handler.timeout_exception, OSError) as error:
            await self.close()
            raise StoreUnavailable(
                self._address, f"no ZooKeeper server answers: {str(error) or type(error).__name__}"
            ) from error
        deadline = time.monotonic() + self._connection_timeout
        walked = -1
        while walked != self._changes:  # a lost connection has lost its watches: walk again
            walked = self._changes
            try:
                await self._walk()
            except StoreUnavailable as error:
                if isinstance(error.__cause__, NoAuthError) or time.monotonic() > deadline:
                    raise
                walked = -1
                await asyncio.sleep(_PREPARE_RETRY_SECONDS)
        self._state, self._opened = SessionState.CONNECTED, True

    def _start(self) -> None:
        deadline = time.monotonic() + self._connection_timeout
        while True:
            try:
                return self._prepare()
            except (ConnectionLoss, SessionExpiredError):
                # Lost again just after it was there, as when ZooKeeper restarts: kazoo reconnects.
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PREPARE_RETRY_SECONDS)

    def _prepare(self) -> None:
        """Connects, and creates what is missing of the tree's directories. Can be repeated."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the chroot may not exist: it is created next
            self._client.start(timeout=self._connection_timeout)
        self._client.ensure_path("/")
        if self._client.exists(OLD_NODE) is not None:
            raise ConfigError(
                f"ZooKeeper at {self._address} has the metadata of an older Penstock (node {OLD_NODE}), "
                "which this version does not read. Start the brokers with the version that wrote it, or "
                "create a new cluster: empty log directories and another chroot in zookeeper.connect"
            )
        for directory in (*DIRECTORIES, *UNWATCHED):
            self._client.ensure_path(directory)
        if self._acl:
            self._protect()

    def _protect(self) -> None:
        """Protects nodes that were created before a password was set, and that all clients can change.

        A client that may change the children of a node can delete them, so the root is protected too. Without
        a chroot, other clients can still read it.
        """
        for directory in (*DIRECTORIES, *UNWATCHED, "/brokers"):
            acl, _ = self._client.get_acls(directory)
            if not any(one.id.scheme == "world" and one.perms != Permissions.READ for one in acl):
                continue
            is_shared = directory == "/" and not self._client.chroot
            for path in self._children(directory):
                self._set_acl(path, self._acl)
            self._set_acl(directory, [*self._acl, _ANYONE_READS] if is_shared else self._acl)

    def _children(self, directory: str) -> list[str]:
        if directory == "/":
            return list(ROOT_NODES)
        return [f"{directory}/{child}" for child in self._client.get_children(directory)]

    def _set_acl(self, path: str, acl: Sequence[ACL]) -> None:
        try:
            self._client.set_acls(path, acl)
        except NoNodeError:
            pass  # it was deleted meanwhile, or does not exist yet

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._mirror.close()
        self._on_session.clear()
        if self._walking is not None:
            self._walking.cancel()
        await asyncio.get_running_loop().run_in_executor(None, self._stop)

    def _stop(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except (KazooException, OSError, RuntimeError) as error:
            log.warning("%s: %s", self._address, error)

    # Reads

    async def get(self, path: str) -> Versioned | None:
        return (await self.read([path])).get(path)

    async def read(self, paths: Collection[str]) -> dict[str, Versioned]:
        try:
            # After the sync, reads of this connection see everything that any server had confirmed.
            await self._ask(self._client.sync_async, "/")
            answers = await asyncio.gather(*(self._mirror.get(path) for path in paths))
        except KazooException as error:
            raise self._unavailable(next(iter(paths), "/"), error) from error
        return {path: node for path, node in zip(paths, answers, strict=True) if node is not None}

    async def list(self, prefix: str) -> dict[str, Versioned]:
        prefix = prefix.rstrip("/")
        try:
            await self._ask(self._client.sync_async, "/")
            names = await self._mirror.names()
        except KazooException as error:
            raise self._unavailable(prefix or "/", error) from error
        return await self.read([path for path in names if path.startswith(prefix + "/")])

    # Writes

    async def create(self, path: str, value: bytes, ephemeral: bool = False) -> None:
        await self.multi([Create(path, value, ephemeral)])

    async def compare_and_set(self, path: str, value: bytes, version: int) -> int:
        try:
            stat = await self._ask(self._client.set_async, there(path), value, version)
        except NoNodeError:
            raise NoNode(path) from None
        except BadVersionError:
            raise BadVersion(path) from None
        except KazooException as error:
            raise self._unavailable(path, error) from error
        self._mirror.wrote(path, (value, stat.version))
        self._mirror.notify([path])
        changed: int = stat.version
        return changed

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def multi(self, ops: Sequence[Op]) -> None:
        if not ops:
            return
        transaction: TransactionRequest = self._client.transaction()
        for op in ops:
            match op:
                case Create(path, value, ephemeral):
                    transaction.create(there(path), value, ephemeral=ephemeral)
                case Set(path, value, version):
                    transaction.set_data(there(path), value, version)
                case Delete(path, version):
                    transaction.delete(there(path), version)
                case Check(path, version):
                    transaction.check(there(path), version)
        try:
            results = await self._ask(transaction.commit_async)
        except KazooException as error:
            raise self._unavailable(ops[0].path, error) from error
        for op, result in zip(ops, results, strict=True):
            if isinstance(result, NodeExistsError):
                raise NodeExists(op.path)
            if isinstance(result, NoNodeError):
                raise NoNode(op.path)
            if isinstance(result, BadVersionError):
                raise BadVersion(op.path)
            if isinstance(result, Exception) and not isinstance(
                result, (RolledBackError, RuntimeInconsistency)
            ):
                raise self._unavailable(op.path, result)
        changed = [
            (op, result)
            for op, result in zip(ops, results, strict=True)
            if not isinstance(op, Check) and directory_of(op.path) not in UNWATCHED
        ]
        for op, result in changed:
            match op:
                case Create(path, value):
                    self._mirror.wrote(path, (value, 0))
                case Set(path, value):
                    self._mirror.wrote(path, (value, result.version))
                case Delete(path):
                    self._mirror.wrote(path, None)
        self._mirror.notify([op.path for op, _ in changed])

    # Notification

    async def watch(self, prefix: str, callback: WatchCallback) -> None:
        self._mirror.watch(prefix, callback)

    def on_session(self, callback: SessionCallback) -> None:
        """`callback` is called on the event loop when the session state changes; for CONNECTED, after the
        mirror has caught up."""
        self._on_session.append(callback)

    def _listen(self, state: str) -> None:
        # Runs in kazoo's thread, which waits for it.
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._changed_session, state)

    def _changed_session(self, state: str) -> None:
        self._changes += 1
        if self._closed or not self._opened:
            return
        self._mirror.disconnected()
        if self._walking is not None:
            self._walking.cancel()
            self._walking = None
        if state == KazooState.CONNECTED:
            self._walking = asyncio.ensure_future(self._reconnected())
        else:
            self._tell(SessionState.LOST if state == KazooState.LOST else SessionState.SUSPENDED)

    async def _walk(self) -> None:
        try:
            await self._mirror.walk()
        except KazooException as error:
            raise self._unavailable("/", error) from error

    async def _reconnected(self) -> None:
        while True:  # cancelled when the connection is lost again: the next one starts over
            try:
                await self._walk()
                break
            except StoreUnavailable as error:
                if self._client.connected:
                    log.warning("Re-reading metadata: %s", error)
            except Exception:  # the border: a failing callback must not leave the broker unregistered
                log.exception("could not follow the metadata after a reconnection")
            await asyncio.sleep(_RETRY_SECONDS)
        self._walking = None
        self._tell(SessionState.CONNECTED)

    async def catch_up(self) -> None:
        """Waits until `nodes` has every change that was made before the call."""
        try:
            await self._mirror.catch_up()
        except KazooException as error:
            raise self._unavailable("/", error) from error

    def _tell(self, state: SessionState) -> None:
        self._state = state
        for callback in list(self._on_session):
            callback(state)

    # kazoo's threads and our event loop

    async def _ask(self, call: Callable[..., Any], *args: Any) -> Any:
        """The response of a call to kazoo; StoreUnavailable if there is none in time: then its outcome is
        unknown."""
        if self._closed:
            raise StoreUnavailable(self._address, "is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def settle(result: Any) -> None:
            if not future.done():
                if result.exception is not None:
                    future.set_exception(result.exception)
                else:
                    future.set_result(result.value)

        def answered(result: Any) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, result)

        call(*args).rawlink(answered)
        try:
            # Not wait_for: in Python 3.11 it loses a cancellation that arrives together with the response.
            async with asyncio.timeout(self._connection_timeout):
                return await future
        except TimeoutError:
            raise StoreUnavailable(self._address, "ZooKeeper does not answer") from None

    def _unavailable(self, path: str, error: Exception) -> StoreUnavailable:
        what = "the session has expired" if isinstance(error, SessionExpiredError) else type(error).__name__
        if isinstance(error, NoAuthError):
            what = "penstock.zookeeper.auth does not match the ACL of its nodes"
        return StoreUnavailable(path, f"ZooKeeper at {self._address} cannot be used: {what}")
