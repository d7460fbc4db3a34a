"""A connector's transforms in order, each with its predicate. Any Python callable can be a transform."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from penstock.connect.errors import ConnectError
from penstock.connect.settings import BadConfig, prefixed_problems
from penstock.connect.transforms.base import Predicate, Record, Transform

Step = Callable[[Record], Record | None]
FindClass = Callable[[str], Any]


def prefixed(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name[len(prefix) :]: value for name, value in config.items() if name.startswith(prefix)}


def steps(config: Mapping[str, str], transform_class: FindClass, predicate_class: FindClass) -> list[Step]:
    """Raises BadConfig, which names the invalid setting."""
    predicates: dict[str, Callable[[Record], bool]] = {}
    for alias in _aliases(config, "predicates"):
        prefix = f"predicates.{alias}."
        predicates[alias] = _made(prefix, prefixed(config, prefix), predicate_class, Predicate, "holds")
    found: list[Step] = []
    for alias in _aliases(config, "transforms"):
        prefix = f"transforms.{alias}."
        own = prefixed(config, prefix)
        name, negate = own.pop("predicate", ""), own.pop("negate", "false").lower() == "true"
        step: Step = _made(prefix, own, transform_class, Transform, "apply")
        if name:
            if name not in predicates:
                raise BadConfig({f"{prefix}predicate": [f"Unknown predicate {name}: name it in predicates"]})
            step = _conditional(step, predicates[name], negate)
        found.append(step)
    return found


def _aliases(config: Mapping[str, str], name: str) -> list[str]:
    found = [each.strip() for each in (config.get(name) or "").split(",") if each.strip()]
    if len(set(found)) < len(found):
        shown = ", ".join(found)
        raise BadConfig(
            {name: [f"Invalid value [{shown}] for configuration {name}: Duplicate alias provided."]}
        )
    return found


def _made(prefix: str, own: dict[str, str], find: FindClass, base: Any, method: str) -> Any:
    kind = own.pop("type", None)
    if not kind:
        missing = f'Missing required configuration "{prefix}type" which has no default value.'
        raise BadConfig({f"{prefix}type": [missing]})
    try:
        found: Any = find(kind)
    except ConnectError as error:
        text = f"Invalid value {kind} for configuration {prefix}type: {error}"
        raise BadConfig({f"{prefix}type": [text]}) from error
    made: Any = found
    if inspect.isclass(found) and issubclass(found, base):
        try:
            return getattr(made(own), method)
        except BadConfig as error:
            raise BadConfig(prefixed_problems(prefix, error.problems)) from error
        except ValueError as error:
            raise BadConfig({f"{prefix}type": [str(error)]}) from error
    if not callable(found):
        raise BadConfig({f"{prefix}type": [f"Class {kind} is neither a {base.__name__} nor a callable"]})
    if inspect.isclass(found):
        return made(own)
    return found


def _conditional(step: Step, predicate: Callable[[Record], bool], negate: bool) -> Step:
    def conditional(record: Record) -> Record | None:
        return step(record) if bool(predicate(record)) != negate else record

    return conditional
