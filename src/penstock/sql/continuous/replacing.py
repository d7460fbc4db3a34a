"""CREATE OR REPLACE: what happens to the state of the existing query, decided before anything is done.

keep     nothing that matters has changed: the query is not touched
restart  it continues from its checkpoint, with its state
rebuild  its checkpoint does not fit: it starts over, and a table is emptied first
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.pipelines.plans.changes import Action, Change, plan_changes, state_can_be_kept
from penstock.pipelines.plans.fingerprint import FlowPrint
from penstock.sql.catalog.catalog import QueryDef
from penstock.sql.errors import Clash, Place, StateLost


def plan(old: QueryDef, new: QueryDef, then: FlowPrint | None, *, keep: bool = False) -> Change:
    """What has to be done to run the new one in place of the old, whose print is `then`: None if it is not
    known what its state was built from. With `keep` state is kept that was built from other rows."""
    now = _print(new)
    if then is None:
        why = "the existing query can no longer be analysed, so it is not known whether its state fits"
        return Change(old.id, Action.REBUILD, (why,))
    (change,) = plan_changes({old.id: then}, {old.id: now}, keep=(old.id,) if keep else (), whole_tables=True)
    if change.action is Action.KEEP and old.sources != new.sources:
        return Change(old.id, Action.RESTART, ("its sources have other columns or options now",))
    if change.action is Action.KEEP and old.target.options != new.target.options:
        return Change(old.id, Action.RESTART, ("its options changed",))
    return change


def _print(query: QueryDef) -> FlowPrint:
    assert query.fingerprint is not None
    return FlowPrint.from_json(query.fingerprint)


def check_format(old: QueryDef, new: QueryDef, place: Place | None) -> None:
    """Clash if records of two formats would be in one topic: no reader could decode both."""
    if old.target.topic is None or old.target.topic != new.target.topic:
        return
    before, now = old.target.format, new.target.format
    if before != now:
        raise Clash(
            f"the records of `{old.target.name}` in the topic `{old.target.topic}` are {before}, those of "
            f"this query would be {now}: write format='{before}', or name another topic with topic='…'",
            place,
        )


def check(
    change: Change, new: QueryDef, then: FlowPrint | None, *, allowed: bool, place: Place | None
) -> None:
    """StateLost if state would go that nobody has given up."""
    if change.action is Action.REBUILD and not allowed:
        why = "; ".join(change.reasons)
        text = (
            f"{change.flow} cannot continue with this query as it is: {why}. WITH (state='rebuild') starts"
            " from an empty state"
        )
        if then is not None and state_can_be_kept(then, _print(new)):
            text += "; WITH (state='keep') keeps the state, and the rows that were written, unchanged and"
            text += " continues with the new query"
        raise StateLost(text, place)


def appends_again(change: Change, old: QueryDef, new: QueryDef) -> str | None:
    """The topic of a stream that gets all records a second time: it is not emptied, as a table is."""
    again = change.action is Action.REBUILD and new.target.kind == "stream"
    return new.target.topic if again and old.target.topic == new.target.topic else None


def check_again(topic: str, downstream: Sequence[str], *, place: Place | None) -> None:
    """StateLost: nobody has said that records may come a second time."""
    count = f", and {_and(downstream)} would count them twice" if downstream else ""
    raise StateLost(
        f"the topic `{topic}` keeps the records that the query has written, and gets all of them again"
        f"{count}. WITH (state='rebuild', existing='append') does that; DROP STREAM … DELETE TOPIC and"
        " CREATE STREAM begin with an empty topic",
        place,
    )


def _and(names: Sequence[str]) -> str:
    return " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else "".join(names)


def replaced(old: QueryDef, new: QueryDef, change: Change) -> QueryDef:
    """The definition that takes the place of the old one, under its id."""
    target = replace(new.target, made_by=old.id)
    if change.action is Action.REBUILD:
        return replace(
            new,
            id=old.id,
            target=target,
            generation=old.generation + 1,
            uid=uuid.uuid4().hex[:12],
            state=old.state,
            empties=_without_history(old) if target.kind == "table" else None,
        )
    return replace(
        new,
        id=old.id,
        target=target,
        generation=old.generation,
        uid=old.uid,
        state=old.state,
        empties=old.empties,
        starting=old.starting,
        shuffle_partitions=old.shuffle_partitions,
    )


def _without_history(old: QueryDef) -> dict[str, Any]:
    """What is needed of the old one to delete its rows."""
    return replace(old, fingerprint=None, empties=None).to_json()
