"""Decides when a group shard deletes the offsets of a topic: only when the topic was certainly deleted.

A topic that is missing in the image was not necessarily deleted: the image may be behind, even behind what
the former coordinator of this shard knew. The topic was certainly deleted if an image had its id and a later
one does not, or if the metadata store, read after the shard was loaded, does not have it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.coordinator import Outcome
from penstock.groups.group import TopicsView
from penstock.groups.offsets.committed import OffsetStore

if TYPE_CHECKING:
    from penstock.groups.share.membership import ShareGroups


class DeletedTopics:
    def __init__(self, offsets: OffsetStore, share: ShareGroups, topics: Callable[[], TopicsView]) -> None:
        self._offsets = offsets
        self._share = share
        self._topics = topics
        self.ids: dict[str, UUID] = {}
        """Of which topic the offsets under a name are. Records have names only, so after a load it is known
        when the store has been asked (`found`)."""

    def names(self) -> set[str]:
        """The topics to look up in the metadata store after the shard was loaded."""
        return self._offsets.topics() | self._share.topics()

    def deleted(self, ids: Collection[UUID]) -> Outcome:
        """Topics with these ids were deleted: a new topic of the same name starts without their offsets."""
        return self._forget([name for name, topic_id in self.ids.items() if topic_id in ids], ids)

    def found(self, asked: Collection[str], existing: Mapping[str, UUID]) -> tuple[Outcome, set[str]]:
        """Of the looked-up names, the store has those in `existing`. Returns the deleted topics, and those to
        look up again: a decision may fail to be written, and the image may be behind the store or, by the
        time of the response, ahead of it.
        """
        view = self._topics()
        gone: list[str] = []
        again: set[str] = set()
        for name in asked:
            known, topic_id, own = view.topics.get(name), existing.get(name), self.ids.get(name)
            shown = None if known is None else known.id
            if own is not None and own != topic_id and own != shown:
                # It existed in an earlier response after the load; it has been deleted since, and recreated.
                gone.append(name)
                again.add(name)
            elif topic_id is not None:
                self.ids[name] = topic_id
                if shown != topic_id:
                    again.add(name)
            elif shown is None:
                gone.append(name)
            else:
                # Recreated since then, or not yet removed from the image.
                self.ids.setdefault(name, shown)
        out = self._forget(gone, self._share.unknown(set(asked), existing))
        if out.records:
            again.update(gone)
        return out, again

    def _forget(self, names: Collection[str], ids: Collection[UUID]) -> Outcome:
        for name in names:
            self.ids.pop(name, None)
        out = Outcome(records=self._offsets.tombstones_of_topics(names) if names else [])
        out.records += self._share.without_topics(ids)
        out.divide()
        return out
