"""CREATE OR REPLACE: what becomes of the state of the query that is there, decided before anything is done.

keep     nothing that matters has changed: the query is not touched
restart  it goes on from its checkpoint, with its state
rebuild  its checkpoint does not fit: it begins anew, and a table is emptied first
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from penstock.pipelines.changes import Action, Change, plan_changes
from penstock.pipelines.fingerprint import FlowPrint
from penstock.sql.catalog import QueryDef
from penstock.sql.errors import Place, StateLost


def plan(old: QueryDef, new: QueryDef, *, rebuild: bool = False) -> Change:
    """What has to be done to run the new one in place of the old."""
    then = FlowPrint.from_json(old.fingerprint) if old.fingerprint is not None else None
    now = FlowPrint.from_json(new.fingerprint) if new.fingerprint is not None else None
    assert now is not None
    if then is None:
        return Change(old.id, Action.REBUILD, ("nothing is known of the query that is there",))
    asked = (old.id,) if rebuild else ()
    (change,) = plan_changes({old.id: then}, {old.id: now}, rebuild=asked)
    if change.action is Action.KEEP and old.sources != new.sources:
        return Change(old.id, Action.RESTART, ("its sources have other columns or options now",))
    if change.action is Action.KEEP and old.target.options != new.target.options:
        return Change(old.id, Action.RESTART, ("its options changed",))
    return change


def check(change: Change, *, allowed: bool, place: Place | None) -> None:
    """StateLost if state would go that nobody has given up."""
    if change.action is Action.REBUILD and not allowed:
        why = "; ".join(change.reasons)
        raise StateLost(
            f"the state of {change.flow} does not fit this query: {why}. WITH (state='rebuild') begins anew",
            place,
        )


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
        )
    return replace(
        new,
        id=old.id,
        target=target,
        generation=old.generation,
        uid=old.uid,
        state=old.state,
        starting=old.starting,
        shuffle_partitions=old.shuffle_partitions,
    )
