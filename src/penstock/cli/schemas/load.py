"""`penstock schemas import`: what `export` wrote, into another registry, with the same ids and versions.

First all that is there is compared: a version or an id that another schema has is an error before anything is
written. Then what is missing is registered, each subject in the mode IMPORT; deletions, configurations and
modes come last. A second run finds nothing to do.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli.failure import CommandFailed
from penstock.cli.output import progress
from penstock.cli.schemas.export import FORMAT, INDEX

if TYPE_CHECKING:
    from penstock.registry.client import RegisteredSchema, RegistryClient

Json = dict[str, Any]
Place = tuple[str, int]


@dataclass
class Exported:
    """The lines of an export, by kind; the schemas in an order in which they can be registered."""

    schemas: list[Json] = field(default_factory=list)
    configs: dict[str | None, Json] = field(default_factory=dict)
    modes: dict[str | None, str] = field(default_factory=dict)


def import_from(client: RegistryClient, source: str, *, dry_run: bool) -> dict[str, int]:
    exported = read_export(source)
    there = {(each.subject, each.version): each for each in client.schemas(deleted=True)}
    live = {(each.subject, each.version) for each in client.schemas()}
    missing = [line for line in exported.schemas if not _is_there(line, there)]
    _check_ids(missing, there)
    counts = {"imported": len(missing), "present": len(exported.schemas) - len(missing)}
    if dry_run:
        return counts
    before: dict[str, str | None] = {}
    with progress("import", len(missing), unit="schemas") as bar:
        for count, line in enumerate(missing, 1):
            subject = line["subject"]
            if subject not in before:
                before[subject] = _open(client, subject, has_some=any(name == subject for name, _ in there))
            _register(client, line)
            bar.update(count)
    gone = [line for line in exported.schemas if line.get("deleted")]
    new = {(line["subject"], line["version"]) for line in missing}
    for line in reversed(gone):  # first those that refer to others
        place = (line["subject"], line["version"])
        if place in new or place in live:
            client.request("DELETE", "subjects", place[0], "versions", str(place[1]))
    _settle(client, exported, before)
    return counts


def read_export(source: str) -> Exported:
    """The lines of a file, a directory or stdin, checked."""
    found, header, end = Exported(), None, None
    for number, line in _lines(source):
        where = f"{source}, line {number}"
        kind = line.get("kind")
        try:
            if kind == "export":
                header = line
                if line["format"] != FORMAT:
                    raise CommandFailed(
                        f"{where}: format {line['format']} is not supported, only {FORMAT} is."
                    )
            elif kind == "schema":
                if "file" in line:
                    if Path(line["file"]).is_absolute() or ".." in Path(line["file"]).parts:
                        raise CommandFailed(f"{where}: {line['file']} is outside of {source}.")
                    line["schema"] = _text(Path(source, line["file"]))
                for name, expected in (("subject", str), ("schema", str), ("version", int), ("id", int)):
                    if not isinstance(line[name], expected):
                        raise KeyError(name)
                found.schemas.append(line)
            elif kind == "config":
                found.configs[line["subject"]] = line["config"]
            elif kind == "mode":
                found.modes[line["subject"]] = line["mode"]
            elif kind == "end":
                end = line["schemas"]
            else:
                raise CommandFailed(f"{where}: '{kind}' is not a kind of line in an export.")
        except KeyError as error:
            raise CommandFailed(f"{where}: there is no {error}.") from None
    if header is None:
        raise CommandFailed(f"{source} is not the output of `penstock schemas export`.")
    if end != len(found.schemas):
        raise CommandFailed(f"{source} is cut off: it has {len(found.schemas)} schemas of {end or 'some'}.")
    return found


def _lines(source: str) -> Iterator[tuple[int, Json]]:
    path = Path(source)
    text = sys.stdin.read() if source == "-" else _text(path / INDEX if path.is_dir() else path)
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise CommandFailed(f"{source}, line {number}: not JSON: {error}.") from None
        if not isinstance(value, dict):
            raise CommandFailed(f"{source}, line {number}: not a JSON object.")
        yield number, value


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            return stream.read()
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise CommandFailed(f"{path} is not text in UTF-8.") from None


def _is_there(line: Json, there: dict[Place, RegisteredSchema]) -> bool:
    found = there.get((line["subject"], line["version"]))
    if found is None:
        return False
    if found.id == line["id"]:
        return True
    raise CommandFailed(
        f"{line['subject']} version {line['version']} exists with id {found.id}, but the export has id "
        f"{line['id']}: nothing was imported."
    )


def _check_ids(missing: list[Json], there: dict[Place, RegisteredSchema]) -> None:
    """An id that another schema has would be refused half-way."""
    from penstock.registry.subjects import context_of

    taken = {(context_of(each.subject), each.id): each for each in there.values()}
    for line in missing:
        found = taken.get((context_of(line["subject"]), line["id"]))
        if found is not None and found.schema != line["schema"]:
            raise CommandFailed(
                f"the id {line['id']} of {line['subject']} version {line['version']} is taken by "
                f"{found.subject} version {found.version}, which is another schema: nothing was imported."
            )


def _open(client: RegistryClient, subject: str, *, has_some: bool) -> str | None:
    """Puts a subject into the mode IMPORT; the mode that it had of its own."""
    mode = client.mode(subject)
    if mode != "IMPORT":
        # Without force a registry refuses where there are versions, and drops those deleted softly.
        client.put("mode", subject, {"mode": "IMPORT"}, force=has_some)
    return mode


def _register(client: RegistryClient, line: Json) -> None:
    names = ("schema", "schemaType", "references", "metadata", "ruleSet", "id", "version")
    body = {name: line[name] for name in names if name in line}
    got = client.register(line["subject"], body)
    if got != line["id"]:
        raise CommandFailed(
            f"{line['subject']} version {line['version']} got the id {got}, not {line['id']}: "
            "the registry does not import ids."
        )


def _settle(client: RegistryClient, exported: Exported, before: dict[str, str | None]) -> None:
    for subject, config in exported.configs.items():
        now = client.config(subject)
        if now != config:
            wanted = dict(config)
            if "compatibilityLevel" in wanted:  # the one name that differs between reading and writing
                wanted["compatibility"] = wanted.pop("compatibilityLevel")
            client.put("config", subject, wanted)
    for subject, mode in exported.modes.items():
        if client.mode(subject) != mode:
            client.put("mode", subject, {"mode": mode}, force=True)
    imported = {line["subject"] for line in exported.schemas}
    for subject in sorted(before.keys() | imported):
        if subject in exported.modes:
            continue
        was = before.get(subject)
        if was not in (None, "IMPORT"):
            client.put("mode", subject, {"mode": was})
        elif client.mode(subject) == "IMPORT":  # also one that an import before this one left behind
            client.unset("mode", subject)
