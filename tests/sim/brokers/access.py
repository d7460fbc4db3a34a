"""ACLs and quotas in a simulated cluster, changed at each broker: `python -m tests.sim.brokers.access`.

On the simulated clock a change is in force on all brokers within a second of its answer. It comes by watches:
nothing reads all of ZooKeeper meanwhile, and where watches are not heard (`--deaf`) no change comes at all.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

from penstock.broker.security.quotas.quotas import PRODUCE
from penstock.controller.access import QuotaChange
from penstock.metadata.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from penstock.metadata.zookeeper_mirror import Mirror
from tests.sim.brokers.loop import in_process
from tests.sim.brokers.node import Node
from tests.sim.brokers.world import World, simulate

PROMISED_S = 1.0
_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class AccessWorld(World):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.slowest = 0.0
        for node in self.nodes:
            node._settings.update(_SETTINGS)

    async def run(self) -> None:
        for node in self.nodes:
            node.start()
        await self.until(lambda: all(node.is_settled for node in self.nodes), "the brokers to start")
        walks = [self._mirror(node)._walk for node in self.nodes]
        for node in self.nodes:
            await self._change_at(node)
        if walks != [self._mirror(node)._walk for node in self.nodes]:
            self.history.violation("all of ZooKeeper was read again, which no watch asks for")
        self.note(f"the slowest change was in force after {self.slowest:.2f} s")
        if self.slowest > PROMISED_S:
            self.history.violation(f"a change was in force on all brokers after {self.slowest:.2f} s")

    @staticmethod
    def _mirror(node: Node) -> Mirror:
        assert node.store is not None
        return node.store._mirror

    async def _change_at(self, node: Node) -> None:
        name = f"of-{node.name}"
        rule = Acl(
            ResourceType.TOPIC, name, PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW
        )
        asked = AclFilter(ResourceType.TOPIC, name)
        quota = QuotaChange([("user", name)], [(PRODUCE, 1000.0)])
        await self._in_force(
            node, lambda one: one.create_acls([rule]), lambda broker: self._allows(broker, name)
        )
        await self._in_force(
            node, lambda one: one.delete_acls([asked]), lambda broker: not self._allows(broker, name)
        )
        await self._in_force(
            node, lambda one: one.alter_client_quotas([quota]),
            lambda broker: broker.quotas.bound(PRODUCE, (name, "")) is not None,
        )  # fmt: skip

    @staticmethod
    def _allows(broker: Any, topic: str) -> bool:
        return bool(
            broker.authorizer.allows("User:alice", "10.0.0.1", Operation.READ, ResourceType.TOPIC, topic)
        )

    async def _in_force(
        self, node: Node, change: Callable[[Any], Awaitable[Any]], shows: Callable[[Any], bool]
    ) -> None:
        """From when its broker has answered."""
        assert node.broker is not None and node.process is not None
        task = self.loop.create_task(change(node.broker.controller), context=in_process(node.process))
        await self.until(task.done, "a change to be made")
        made = self.loop.now
        await self.until(lambda: all(shows(one.broker) for one in self.nodes), "a change to be in force")
        self.slowest = max(self.slowest, self.loop.now - made)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--deaf", action="store_true", help="watches are not heard: this has to be found")
    options = parser.parse_args()
    failures: list[str] = []
    for seed in range(options.seeds):
        if options.deaf:
            with patch.object(Mirror, "_later", lambda self, path, walk: None):
                failures += simulate(seed, kind=AccessWorld).failures
        else:
            failures += simulate(seed, kind=AccessWorld).failures
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
