"""Why a registry rejects a schema, one line for each field: parses Confluent's messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

_REASON = re.compile(
    r"""\{errorType:['"](?P<kind>\w+)['"],\ description:['"](?P<text>.*?)['"]
        (?:,\ additionalInfo:['"](?P<detail>.*)['"])?\}\Z""",
    re.VERBOSE | re.DOTALL,
)
_PATH = re.compile(r"path '([^']*)'")
_OLD = re.compile(r"\{oldSchema: '(.*)'\}\Z", re.DOTALL)
_OLD_VERSION = re.compile(r"\{oldSchemaVersion: (\d+)\}\Z")
_LEVEL = re.compile(r"compatibility: '(\w+)'")


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason; `field` is empty if the message names none."""

    field: str
    problem: str
    text: str
    detail: str = ""

    def as_json(self) -> dict[str, str]:
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True, slots=True)
class Verdict:
    """All reasons, and what the schema was compared with."""

    reasons: list[Reason]
    level: str = ""
    version: int | None = None


def take_apart(messages: Iterable[str], new_schema: str) -> Verdict:
    """`new_schema` is the sent schema: paths into an Avro schema become names of fields."""
    texts = list(messages)
    old_schema, level, version = "", "", None
    for text in texts:
        if match := _OLD.match(text):
            old_schema = match[1]
        elif match := _OLD_VERSION.match(text):
            version = int(match[1])
        elif text.startswith("{validateFields") and (match := _LEVEL.search(text)):
            level = match[1]
    reasons = []
    for text in texts:
        if _OLD.match(text) or _OLD_VERSION.match(text) or text.startswith("{validateFields"):
            continue
        match = _REASON.match(text)
        if match is None:
            reasons.append(Reason("", "", text))
            continue
        sentence, path = match["text"], _PATH.search(match["text"])
        of_old = re.search(r"the (new|old) schema", sentence)
        schema = old_schema if of_old and of_old[1] == "old" else new_schema
        place = field_at(path[1], schema) if path else ""
        detail = match["detail"] or ""
        reasons.append(Reason(place, match["kind"], sentence, "" if detail in sentence else detail))
    return Verdict(reasons, level, version)


def sentence(reason: Reason) -> str:
    """The field, the kind of problem, and the registry's description."""
    parts = [part for part in (reason.field, reason.problem) if part]
    said = reason.text + (f" ({reason.detail})" if reason.detail else "")
    return ": ".join([*parts, said])


def measure(subject: str, verdict: Verdict) -> str:
    """What a schema was compared with."""
    version = f" version {verdict.version}" if verdict.version is not None else ""
    return f"{subject}{version}{f' ({verdict.level})' if verdict.level else ''}"


def field_at(path: str, schema: str) -> str:
    """`/fields/1/type/fields/0` becomes `address.street`; other paths lose their structural parts."""
    if path.startswith("#"):
        steps = path.strip("#/").split("/")
        words = [step for step in steps if step not in ("properties", "")]
        return ".".join(words) or path
    try:
        node: Any = json.loads(schema)
    except ValueError:
        return path
    names: list[str] = []
    for step in path.strip("/").split("/"):
        if isinstance(node, list) and step.isdecimal() and int(step) < len(node):
            node = node[int(step)]
            if isinstance(node, dict) and "type" in node and "name" in node and "fields" not in node:
                names.append(str(node["name"]))
        elif isinstance(node, dict) and step in node:
            node = node[step]
            if step in ("items", "values"):
                names.append("[]" if step == "items" else "{}")
        else:
            break  # a type that is only named here: its fields are defined elsewhere
    return ".".join(names).replace(".[]", "[]").replace(".{}", "{}") or path
