"""The group coordinator: pure state machines over the records of `__consumer_offsets`.

`GroupShard` is the entry point, one for each partition. Nothing here does I/O, reads a clock or starts a
task.
"""

from penstock.groups.group import Caller, Group, TopicsView
from penstock.groups.settings import GroupSettings
from penstock.groups.shard import GroupShard

__all__ = ["Caller", "Group", "GroupSettings", "GroupShard", "TopicsView"]
