"""The metadata of a cluster in ZooKeeper, through kazoo: the store's tree, mirrored here by watches.

A path of ours becomes one level below its first part, /topics/a/state/0 being /topics/a:state:0 there, so
that no parents come and go with their children. kazoo answers in threads of its own; all that the caller
sees happens on its event loop, in the order in which ZooKeeper answered.

    SUSPENDED  the connection is gone; the session, and with it our ephemeral nodes, may live on
    LOST       the session is over: our ephemeral nodes are gone, or will be as soon as ZooKeeper says so
    CONNECTED  reads and writes work again; the mirror has caught up
"""

from __future__ import annotations

import asyncio
import enum
import logging
import warnings
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.protocol.states import EventType, KazooState, WatchedEvent
from kazoo.retry import KazooRetry
from kazoo.security import make_digest_acl

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

DIRECTORIES = ("brokers", "cluster", "config", "deleted", "topics", "acls", "quotas", "credentials")
"""The first parts of all paths. Made when the store is opened; they are never deleted."""

_SEPARATOR = ":"
_RETRY_SECONDS = 0.2
_DIRECTORY_PATHS = frozenset(f"/{name}" for name in DIRECTORIES)
_TOPICS = "/topics"
_MOST_READS = 20  # in a row before what was read is announced, while more and more topics are created

log = logging.getLogger(__name__)


class SessionState(enum.Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


SessionCallback = Callable[[SessionState], None]


class ZooKeeperStore:
    """`open()` first. `nodes` is the tree as of the last answer that came in; it may lag, never go back."""

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
        """`auth` is "user:password": who knows them, and nobody else, can read and change the nodes.

        The stores are PEM files, for `tls`: the key and certificate to show, and whom to trust.
        """
        self._address = hosts
        self._acl = None if auth is None else [make_digest_acl(*auth.split(":", 1), all=True)]
        self._connection_timeout = connection_timeout_ms / 1000
        self._client = KazooClient(
            hosts,
            timeout=session_timeout_ms / 1000,
            default_acl=self._acl,
            auth_data=None if auth is None else [("digest", auth)],
            use_ssl=tls,
            keyfile=keystore,
            certfile=keystore,
            ca=truststore,
            check_hostname=tls,
            connection_retry=KazooRetry(
                max_tries=-1, delay=0.05, backoff=2, max_delay=1, ignore_expire=False
            ),
            logger=logging.getLogger("penstock.zookeeper.client"),
        )
        logging.getLogger("penstock.zookeeper.client").setLevel(logging.ERROR)
        self.nodes: dict[str, Versioned] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watches: list[tuple[str, WatchCallback]] = []
        self._on_session: list[SessionCallback] = []
        self._walk = 0  # which walk over the tree is the newest; watches of older ones are deaf
        self._walking: asyncio.Task[None] | None = None
        self._watched: tuple[int, set[str]] = (0, set())  # a walk, and the paths that have a watch in it
        self._unannounced: set[str] = set()  # changed in `nodes`, and not yet reported to those who watch
        self._fired: set[str] = set()  # directories and nodes whose watch has fired in this walk
        self._topics_listed = -1  # which version of the list of topics was read last
        self._reading = asyncio.Lock()  # one reading at a time, with one announcement at its end
        self._rereading: asyncio.Task[None] | None = None
        self._state = SessionState.SUSPENDED
        self._opened = False
        self._closed = False

    @property
    def state(self) -> SessionState:
        return self._state

    async def open(self) -> None:
        """Connect, and mirror the tree. StoreUnavailable when no server answers in time."""
        self._loop = asyncio.get_running_loop()
        self._client.add_listener(self._listen)
        try:
            await self._loop.run_in_executor(None, self._start)
        except NoAuthError as error:
            await self.close()
            raise self._unavailable("/", error) from None
        except (KazooException, self._client.handler.timeout_exception, OSError) as error:
            await self.close()
            raise StoreUnavailable(
                self._address, f"no ZooKeeper server answers: {error or type(error).__name__}"
            ) from error
        await self._mirror()
        self._state, self._opened = SessionState.CONNECTED, True

    def _start(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a chroot that is not there: it is made next
            self._client.start(timeout=self._connection_timeout)
        self._client.ensure_path("/")
        for name in DIRECTORIES:
            self._client.ensure_path(f"/{name}")
        if self._acl is not None:
            self._protect()

    def _protect(self) -> None:
        """Nodes that were made before there was a password are open to all: from here on they are not."""
        directories = [f"/{name}" for name in DIRECTORIES] + (["/"] if self._client.chroot else [])
        for directory in directories:
            acl, _ = self._client.get_acls(directory)
            if not any(one.id.scheme == "world" for one in acl):
                continue
            children = [] if directory == "/" else self._client.get_children(directory)
            for path in (*(f"{directory}/{child}" for child in children), directory):
                try:
                    self._client.set_acls(path, self._acl)
                except NoNodeError:
                    pass  # it went meanwhile

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._watches.clear()
        self._on_session.clear()
        for task in (self._walking, self._rereading):
            if task is not None:
                task.cancel()
        await asyncio.get_running_loop().run_in_executor(None, self._stop)

    def _stop(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except (KazooException, OSError, RuntimeError) as error:
            log.warning("%s: %s", self._address, error)

    # Reads

    async def get(self, path: str) -> Versioned | None:
        try:
            value, stat = await self._ask(self._client.get_async, _there(path))
        except NoNodeError:
            return None
        except KazooException as error:
            raise self._unavailable(path, error) from error
        return value, stat.version

    async def list(self, prefix: str) -> dict[str, Versioned]:
        prefix = prefix.rstrip("/")
        found: dict[str, Versioned] = {}
        try:
            # What this connection reads from here on is not older than what any server had confirmed.
            await self._ask(self._client.sync_async, "/")
            paths = [path for path in await self._names() if path.startswith(prefix + "/")]
            answers = await asyncio.gather(*(self.get(path) for path in paths))
        except KazooException as error:
            raise self._unavailable(prefix or "/", error) from error
        for path, answer in zip(paths, answers, strict=True):
            if answer is not None:
                found[path] = answer
        return found

    async def _names(self) -> Sequence[str]:
        children = await asyncio.gather(
            *(self._ask(self._client.get_children_async, f"/{name}") for name in DIRECTORIES)
        )
        return [
            _here(directory, child)
            for directory, names in zip(DIRECTORIES, children, strict=True)
            for child in names
        ]

    # Writes

    async def create(self, path: str, value: bytes, ephemeral: bool = False) -> None:
        await self.multi([Create(path, value, ephemeral)])

    async def compare_and_set(self, path: str, value: bytes, version: int) -> int:
        try:
            stat = await self._ask(self._client.set_async, _there(path), value, version)
        except NoNodeError:
            raise NoNode(path) from None
        except BadVersionError:
            raise BadVersion(path) from None
        except KazooException as error:
            raise self._unavailable(path, error) from error
        self._wrote(path, (value, stat.version))
        self._notify([path])
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
                    transaction.create(_there(path), value, ephemeral=ephemeral)
                case Set(path, value, version):
                    transaction.set_data(_there(path), value, version)
                case Delete(path, version):
                    transaction.delete(_there(path), version)
                case Check(path, version):
                    transaction.check(_there(path), version)
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
        for op, result in zip(ops, results, strict=True):
            match op:
                case Create(path, value):
                    self._wrote(path, (value, 0))
                case Set(path, value):
                    self._wrote(path, (value, result.version))
                case Delete(path):
                    self._wrote(path, None)
        self._notify([op.path for op in ops if not isinstance(op, Check)])

    def _wrote(self, path: str, node: Versioned | None) -> None:
        """Who has made a change sees it in the mirror at once; its watch follows and finds nothing new.

        Answers come in the order of their requests, so no read that is still under way is newer, and none
        that comes in later is older.
        """
        if node is None:
            self.nodes.pop(path, None)
        else:
            self.nodes[path] = node

    # Notification

    async def watch(self, prefix: str, callback: WatchCallback) -> None:
        self._watches.append((prefix.rstrip("/"), callback))

    def on_session(self, callback: SessionCallback) -> None:
        """Called on the loop when the state changes, after the mirror has caught up where it is CONNECTED."""
        self._on_session.append(callback)

    def _listen(self, state: str) -> None:
        # In kazoo's thread, which waits for this.
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._changed_session, state)

    def _changed_session(self, state: str) -> None:
        if self._closed or not self._opened:
            return
        self._walk += 1  # kazoo has dropped all watches
        if self._walking is not None:
            self._walking.cancel()
            self._walking = None
        if state == KazooState.CONNECTED:
            self._walking = asyncio.ensure_future(self._reconnected())
        else:
            self._tell(SessionState.LOST if state == KazooState.LOST else SessionState.SUSPENDED)

    async def _reconnected(self) -> None:
        while True:  # cancelled when the connection is gone again: the next one starts over
            try:
                await self._mirror()
                break
            except StoreUnavailable as error:
                self._complain(error)
                await asyncio.sleep(_RETRY_SECONDS)
        self._walking = None
        self._tell(SessionState.CONNECTED)

    async def catch_up(self) -> None:
        """When this returns, `nodes` has every change that was made before it was called."""
        try:
            await self._ask(self._client.sync_async, "/")
            paths = {*await self._names(), *self.nodes}
            # The watches stay as they are: this only does not wait for them.
            async with self._reading:
                try:
                    await self._all(self._refresh(path) for path in paths)
                    await self._read_paths(set(), self._walk)
                except BaseException:
                    self._fired.add(_TOPICS)  # what was read is announced with the next reading
                    self._reread_soon()
                    raise
        except KazooException as error:
            raise self._unavailable("/", error) from error

    async def _refresh(self, path: str) -> None:
        self._read(path, await self.get(path))

    def _tell(self, state: SessionState) -> None:
        self._state = state
        for callback in list(self._on_session):
            callback(state)

    # The mirror: a watch on each directory's children and on each node

    async def _mirror(self) -> None:
        self._walk += 1
        if self._rereading is not None:
            self._rereading.cancel()
        async with self._reading:
            self._fired.clear()
            try:
                await self._ask(self._client.sync_async, "/")
                await self._read_paths({f"/{name}" for name in DIRECTORIES}, self._walk)
            except KazooException as error:
                raise self._unavailable("/", error) from error
        self._reread_soon()

    async def _read_paths(self, paths: set[str], walk: int) -> None:
        """Read these directories and nodes, and announce what has changed as one change.

        Nobody is to see a change and not the topics that were created before it: a coordinator would take
        them for deleted. So the topics are read once more where some were created since they were listed.
        """
        for _ in range(_MOST_READS):
            directories = paths & _DIRECTORY_PATHS
            try:
                await self._all(
                    [
                        *(self._read_node(path, walk) for path in paths - directories),
                        *(self._read_directory(path[1:], walk) for path in directories),
                    ]
                )
                # Watches come through another thread than answers, and may be later.
                topics = await self._ask(self._client.exists_async, _TOPICS)
            except BaseException:
                if walk == self._walk:
                    self._fired |= paths
                raise  # what was read is announced when all of it is
            if topics is None or topics.cversion == self._topics_listed:
                break
            paths = {_TOPICS}
        changed, self._unannounced = self._unannounced, set()
        self._notify(list(changed))

    async def _read_directory(self, name: str, walk: int) -> None:
        def fired(event: WatchedEvent) -> None:
            if event.type != EventType.NONE:
                self._later(f"/{name}", walk)

        children, stat = await self._ask(self._client.get_children_async, f"/{name}", fired, True)
        if f"/{name}" == _TOPICS:
            self._topics_listed = stat.cversion
        there = {_here(name, child) for child in children}
        known = self._mirrored(walk)
        for path in [path for path in self.nodes if path.startswith(f"/{name}/") and path not in there]:
            known.discard(path)
            self._read(path, None)
        await self._all(self._read_node(path, walk) for path in there if path not in known)

    async def _read_node(self, path: str, walk: int) -> None:
        known = self._mirrored(walk)
        known.add(path)

        def fired(event: WatchedEvent) -> None:
            if event.type != EventType.NONE:
                self._later(path, walk)

        try:
            value, stat = await self._ask(self._client.get_async, _there(path), fired)
        except NoNodeError:
            known.discard(path)
            self._read(path, None)
        except BaseException:
            known.discard(path)  # it has no watch that is known of
            raise
        else:
            self._read(path, (value, stat.version))

    def _read(self, path: str, node: Versioned | None) -> None:
        """This is what the node is now; `_read_paths` reports it."""
        if self.nodes.get(path) != node:
            self._wrote(path, node)
            self._unannounced.add(path)

    async def _all(self, reads: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Every read is done, or has failed, before the first error is raised."""
        for outcome in await asyncio.gather(*reads, return_exceptions=True):
            if outcome is not None:
                raise outcome

    def _mirrored(self, walk: int) -> set[str]:
        """The paths that have a watch in this walk."""
        if walk > self._watched[0]:
            self._watched = (walk, set())
        return self._watched[1] if walk == self._watched[0] else set()

    def _later(self, path: str, walk: int) -> None:
        """In kazoo's thread, a watch has fired: read it on the loop, unless all starts over or ends."""
        loop = self._loop

        def start() -> None:
            if walk == self._walk:
                self._fired.add(path)
                self._reread_soon()

        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(start)

    def _reread_soon(self) -> None:
        if self._fired and self._rereading is None and not self._closed:
            self._rereading = asyncio.ensure_future(self._reread())
            self._rereading.add_done_callback(self._reread_done)

    def _reread_done(self, task: asyncio.Task[None]) -> None:
        self._rereading = None
        self._reread_soon()

    async def _reread(self) -> None:
        """A watch fires once: what it reported is read until it is known, or all is read by a later walk."""
        while self._fired:
            try:
                async with self._reading:
                    paths, self._fired = self._fired, set()
                    await self._read_paths(paths, self._walk)
            except (KazooException, StoreUnavailable) as error:
                self._complain(error)
                await asyncio.sleep(_RETRY_SECONDS)
            except Exception:  # the border: a watcher that fails must not end the mirror
                log.exception("a change of the metadata could not be followed")
                await asyncio.sleep(_RETRY_SECONDS)

    def _complain(self, error: Exception) -> None:
        """Where the connection is lost, that is said elsewhere."""
        if self._client.connected and not self._closed:
            log.warning("a change of the metadata is read again: %s", error)

    def _notify(self, paths: Sequence[str]) -> None:
        if not paths or self._closed:
            return
        for prefix, callback in list(self._watches):
            changed = frozenset(path for path in paths if path == prefix or path.startswith(prefix + "/"))
            if changed:
                callback(changed)

    # kazoo's threads and our loop

    async def _ask(self, call: Callable[..., Any], *args: Any) -> Any:
        """Its answer; StoreUnavailable when there is none in time, and then nobody knows what came of it."""
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
            # Not wait_for: in Python 3.11 it forgets a cancellation that comes together with the answer.
            async with asyncio.timeout(self._connection_timeout):
                return await future
        except TimeoutError:
            raise StoreUnavailable(self._address, "ZooKeeper does not answer") from None

    def _unavailable(self, path: str, error: Exception) -> StoreUnavailable:
        what = "the session is over" if isinstance(error, SessionExpiredError) else type(error).__name__
        if isinstance(error, NoAuthError):
            what = "penstock.zookeeper.auth is not that of its nodes"
        return StoreUnavailable(path, f"ZooKeeper at {self._address} cannot be used: {what}")


def _there(path: str) -> str:
    directory, _, rest = path[1:].partition("/")
    return f"/{directory}/{rest.replace('/', _SEPARATOR)}"


def _here(directory: str, child: str) -> str:
    return f"/{directory}/{child.replace(_SEPARATOR, '/')}"
