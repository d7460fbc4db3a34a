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
from penstock.sql.catalog.relations import value_names
from penstock.sql.continuous.running import record_key
from penstock.sql.errors import Clash, Place, StateLost


def plan(old: QueryDef, new: QueryDef, then: FlowPrint | None, *, keep: bool = False) -> Change:
    """How to replace the old query, whose print is `then`, by the new one. None means that it is not known
    what its state was built from. With `keep`, state built from other rows is kept.
    """
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
    """Raises Clash if records with two encodings would be in one topic: no reader could decode both."""
    if not _one_topic(old, new):
        return
    before, now = old.target.format, new.target.format
    if before != now:
        raise _two_encodings(old, before, now, f"write format='{before}'", place)
    for option, default in (("delimiter", ","), ("message", "")):
        # A record of a stream names its Protobuf message itself; a table is read as one of them.
        if option == "message" and new.target.kind != "table":
            continue
        was, is_now = (each.target.options.get(option, default) for each in (old, new))
        if was != is_now:
            hint = f"write {option}='{was}'" if was else f"leave {option} out"
            raise _two_encodings(old, f"{before} with {option} '{was}'", f"with '{is_now}'", hint, place)
    if before == "csv":
        names = [value_names(each.target) for each in (old, new)]
        folded = [[name.casefold() for name in each] for each in names]
        if folded[1][: len(folded[0])] != folded[0]:
            was, is_now = (", ".join(each) for each in names)
            hint = f"begin with the columns {was}, in this order"
            raise _two_encodings(old, f"csv of the columns {was}", f"of {is_now}", hint, place)


def _one_topic(old: QueryDef, new: QueryDef) -> bool:
    return old.target.topic is not None and old.target.topic == new.target.topic


def _two_encodings(old: QueryDef, before: str, now: str, hint: str, place: Place | None) -> Clash:
    return Clash(
        f"the records of `{old.target.name}` in the topic `{old.target.topic}` are {before}, those of "
        f"this query would be {now}: {hint}, or name another topic with topic='…'",
        place,
    )


def notes(change: Change, old: QueryDef, new: QueryDef) -> list[str]:
    """What readers of the topic notice of an allowed change."""
    if change.action is Action.KEEP or not _one_topic(old, new):
        return []
    emptied = change.action is Action.REBUILD and new.target.kind == "table"
    topic, found = old.target.topic, []
    if not emptied and new.target.format in ("json", "csv"):
        types = {each.name.casefold(): each.type for each in old.target.columns}
        for each in new.target.columns:
            was = types.get(each.name.casefold(), each.type)
            if was != each.type:
                found.append(
                    f"Note: `{each.name}` is {was} in the records that `{topic}` has, and {each.type} in "
                    "new ones"
                )
    before, now = record_key(old), record_key(new)
    if new.target.kind == "stream" and before != now:
        found.append(
            f"Note: the key of new records is {_key_said(now)}, and of those that `{topic}` has "
            f"{_key_said(before)}: records of one key may be in two partitions"
        )
    return found


def _key_said(key: Sequence[str]) -> str:
    return f"({', '.join(key)})" if key else "empty"


def check(
    change: Change, new: QueryDef, then: FlowPrint | None, *, allowed: bool, place: Place | None
) -> None:
    """Raises StateLost if state would be lost without the user's consent."""
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
    """The topic of a stream that gets all records a second time: unlike a table's, it is not emptied."""
    again = change.action is Action.REBUILD and new.target.kind == "stream"
    return new.target.topic if again and old.target.topic == new.target.topic else None


def check_again(topic: str, downstream: Sequence[str], *, place: Place | None) -> None:
    """Raises StateLost unless the statement allows records to be written a second time."""
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
    """The definition that replaces the old one, with the same id."""
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
    """The parts of the old definition that are needed to delete its rows."""
    return replace(old, fingerprint=None, empties=None).to_json()


def topics_left(old: QueryDef, new: QueryDef) -> frozenset[str]:
    """Topics for which the query's consumer group has offsets and that it no longer reads."""
    return _read(old) - _read(new)


def _read(query: QueryDef) -> frozenset[str]:
    if query.mode == "refresh":
        return frozenset()
    return frozenset(each.topic for each in query.sources.values() if each.topic is not None)
