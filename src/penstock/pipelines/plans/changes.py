"""Plans a change of a project's files: the action for each flow, shown before anything is applied.

Pure: takes the prints of the running flows and of those in the files, returns an action for each flow.

    start    it is new
    keep     nothing relevant to it has changed: it keeps running
    restart  it has changed, and continues from its checkpoint with its state
    rebuild  its checkpoint does not fit it: its table is emptied, and its sources are read from the start
    stop     it was removed from the files; its checkpoint and table stay
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import zip_longest

from penstock.pipelines.plans.dependencies import differences, same_keys
from penstock.pipelines.plans.fingerprint import FlowPrint
from penstock.pipelines.project.graph import Kind


class Action(StrEnum):
    """The action for a flow."""

    START = "start"
    KEEP = "keep"
    RESTART = "restart"
    REBUILD = "rebuild"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Change:
    """One line of a plan."""

    flow: str
    action: Action
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        why = f": {'; '.join(self.reasons)}" if self.reasons else ""
        return f"{self.action:8}{self.flow}{why}"


def plan_changes(
    old: Mapping[str, FlowPrint],
    new: Mapping[str, FlowPrint],
    *,
    replaced_tables: Mapping[str, str] | None = None,
    rebuild: Collection[str] = (),
    keep: Collection[str] = (),
    whole_tables: bool = False,
) -> list[Change]:
    """The plan, in the order of `new`. `replaced_tables`: tables whose columns no longer fit, and why.
    `rebuild`: flows or tables to rebuild in any case. `keep`: flows that should continue with their state and
    rows, if possible (`state_can_be_kept`). `whole_tables`: the rows of a table must be those of its current
    query, also without state.
    """
    reasons: dict[str, list[str]] = {}
    kept: dict[str, list[str]] = {}
    for name, now in new.items():
        then = old.get(name)
        why = _why_rebuild(then, now) or _why_rows_are_old(then, now, whole_tables)
        if why and then is not None and name in keep and state_can_be_kept(then, now):
            kept[name], why = why, []
        if name in rebuild or now.target in rebuild:
            why.append("asked for")
        if replaced_tables and now.target in replaced_tables:
            why.append(replaced_tables[now.target])
        if why:
            reasons[name] = why
    for name, said in _why_tables_matter(old, new, reasons).items():
        reasons.setdefault(name, []).append(said)
    _spread(new, reasons)
    changes = [
        Change(name, Action.RESTART, (_KEPT, *kept[name]))
        if name in kept and name not in reasons
        else _change(name, old.get(name), now, reasons.get(name))
        for name, now in new.items()
    ]
    changes += [
        Change(name, Action.STOP, ("it was removed from the files",)) for name in old if name not in new
    ]
    return changes


def _why_rebuild(then: FlowPrint | None, now: FlowPrint) -> list[str]:
    if then is None or now.kind in (Kind.MATERIALIZED_VIEW, *_VIEWS):
        return []
    why = []
    if not then.target:
        return _why_state_is_lost(then, now)
    if then.target != now.target or then.kind != now.kind:
        why.append(f"it went into {then.kind} '{then.target}', and now goes into {now.kind} '{now.target}'")
    read, reads = _sources(then, now)
    if read != reads:
        why.append(_difference("its sources", read, reads))
    why += _why_state_is_lost(then, now)
    if then.shared != now.shared and now.kind == Kind.STREAMING_TABLE:
        why.append(
            f"'{now.target}' has {'several flows' if now.shared else 'one flow'} now, and is kept another way"
        )
    return why


def _why_rows_are_old(then: FlowPrint | None, now: FlowPrint, whole_tables: bool) -> list[str]:
    """Why the rows of a table differ from the query's result, although its state fits."""
    if then is None or not then.target or now.kind != Kind.STREAMING_TABLE or _same_query(then, now):
        return []
    if then.gives and then.gives == now.gives:
        return []
    return [_OLD_ROWS] if now.state or whole_tables else []


def _why_state_is_lost(then: FlowPrint, now: FlowPrint) -> list[str]:
    """Why the query cannot continue with the state; empty if it can, or if there is none."""
    if not then.target:
        return ["it is not recorded what its state was built from"] if now.state else []
    if then.lineage is None or now.lineage is None:
        if not then.state and not now.state:
            return []
        same = then.plan == now.plan and then.code == now.code and then.conf == now.conf
        return [] if same else [_RECORDED_TOO_LITTLE]
    changed = [] if then.query == now.query else differences(then.lineage, now.lineage)
    return [f"its state was built from something else: {'; '.join(changed)}"] if changed else []


def state_can_be_kept(then: FlowPrint, now: FlowPrint) -> bool:
    """Whether a flow that needs a rebuild could continue with its state on request: existing results stay
    unchanged, and new records are processed by the new query.
    """
    if not _why_rebuild(then, now):
        return True
    if then.state != now.state or (now.state and (then.lineage is None or now.lineage is None)):
        return False
    built_alike = replace(then, query=now.query, lineage=now.lineage)
    return same_keys(then.lineage or (), now.lineage or ()) and not _why_rebuild(built_alike, now)


def _why_tables_matter(
    old: Mapping[str, FlowPrint], new: Mapping[str, FlowPrint], reasons: Mapping[str, list[str]]
) -> dict[str, str]:
    """Flows whose state contains rows of tables that have another query now."""
    other = {
        now.target
        for name, now in new.items()
        if name in reasons or (name in old and not _same_query(old[name], now))
    }
    return {
        name: f"'{table}', which its state has been joined with, has changed"
        for name, now in new.items()
        if name in old and now.state
        for table in now.looks_up
        if table in other
    }


def _same_query(then: FlowPrint, now: FlowPrint) -> bool:
    if then.query and now.query:
        return then.query == now.query
    return then.plan == now.plan


def _sources(then: FlowPrint, now: FlowPrint) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The old and the new sources: by cluster id if both are known, otherwise by address."""
    pairs = [
        (old_id, new_id) if old_id and new_id else (old, new)
        for old, new, old_id, new_id in zip_longest(
            then.sources, now.sources, then.by_cluster, now.by_cluster, fillvalue=""
        )
    ]
    return tuple(old for old, _ in pairs if old), tuple(new for _, new in pairs if new)


def _difference(what: str, then: tuple[str, ...], now: tuple[str, ...]) -> str:
    gone = [_short(text) for text in then if text not in now]
    come = [_short(text) for text in now if text not in then]
    if not gone and not come:
        return f"{what} changed their order"
    if not then:
        return f"{what} changed: it has {' and '.join(come)} now"
    if not now:
        return f"{what} changed: it had {' and '.join(gone)}"
    return f"{what} changed from {' and '.join(gone) or 'nothing'} to {' and '.join(come) or 'nothing'}"


def _short(text: str, limit: int = 160) -> str:
    return text if len(text) <= limit else text[:limit] + "…"


def _spread(new: Mapping[str, FlowPrint], reasons: dict[str, list[str]]) -> None:
    """Emptying a table also rebuilds all flows into it, and all flows that read it as a stream."""
    while True:
        emptied = {
            now.target: name
            for name, now in new.items()
            if name in reasons and now.kind == Kind.STREAMING_TABLE
        }
        more = {
            name: f"'{table}', which it {'feeds' if now.target == table else 'reads'}, is rebuilt"
            for name, now in new.items()
            if name not in reasons and now.kind in (Kind.STREAMING_TABLE, Kind.SINK)
            for table in (now.target, *now.reads)
            if table in emptied
        }
        if not more:
            break
        reasons.update({name: [why] for name, why in more.items()})
    for name, said in reasons.items():
        if new[name].kind == Kind.SINK:
            said.append("its sink gets the records again")


def _change(name: str, then: FlowPrint | None, now: FlowPrint, rebuild: list[str] | None) -> Change:
    if rebuild:
        return Change(name, Action.REBUILD, tuple(rebuild))
    if then is None:
        return Change(name, Action.START)
    why = []
    if now.state and not _same_query(then, now):
        why.append(_FITS)
    elif then.plan == now.plan and then.code != now.code:
        why.append("its Python code changed")
    elif not _same_query(then, now):
        why.append("its query changed, it has no state; rows that were written before stay as they are")
    if then.columns != now.columns and not _same_query(then, now):
        why.append(_difference("its columns", then.columns, now.columns))
    if then.conf != now.conf:
        why.append("its settings changed")
    return Change(name, Action.RESTART if why else Action.KEEP, tuple(why))


_FITS = "its query changed, its state fits; rows that were written before stay as they are"
_OLD_ROWS = "its query changed, and the rows that are in its table were written by the query before"
_KEPT = "its state, and the rows that it wrote, are kept as asked for"
_RECORDED_TOO_LITTLE = (
    "it has changed since it ran on an earlier version of Penstock, which did not record all that its state "
    "was built from"
)
_VIEWS = (Kind.TEMPORARY_VIEW, Kind.VIEW)


def rebuilt_together(
    rebuilds: Collection[Change], prints: Mapping[str, FlowPrint], agreed: Collection[str]
) -> set[str]:
    """The rebuilds that the approved ones require: flows into the same tables, and their readers."""
    chosen = {change.flow for change in rebuilds if change.flow in agreed}
    while True:
        tables = {prints[name].target for name in chosen if prints[name].kind == Kind.STREAMING_TABLE}
        more = {
            change.flow
            for change in rebuilds
            if change.flow not in chosen and tables & {prints[change.flow].target, *prints[change.flow].reads}
        }
        if not more:
            return chosen
        chosen |= more
