"""`penstock schemas`: a client of any registry that has Confluent's API."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from penstock.admin.words import plural
from penstock.cli.failure import CommandFailed, did_you_mean
from penstock.cli.options.properties import key_values
from penstock.cli.options.shared import json_option
from penstock.cli.output import emit_json, note, table
from penstock.cli.schemas.files import TYPES, read_schema, references_of, type_of
from penstock.cli.schemas.reasons import incompatible, tell
from penstock.cli.schemas.registry_options import LEVELS, RegistryAt, registry_options
from penstock.registry.reasons import measure, take_apart

if TYPE_CHECKING:
    from penstock.registry.client import RegisteredSchema, RegistryClient

MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
INCOMPATIBLE = 409

type_option = click.option(
    "--type", "schema_type", type=click.Choice(TYPES), help="Default: by the ending .avsc, .json or .proto."
)
reference_option = click.option(
    "--reference",
    "references",
    metavar="NAME=SUBJECT:VERSION",
    multiple=True,
    help="A schema that this one imports, and the name it uses for it.",
)
normalize_option = click.option(
    "--normalize",
    is_flag=True,
    help="Normalize the schema first, so that formatting and order do not matter.",
)
file_argument = click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))


class VersionType(click.ParamType[str]):
    """A number from 1, or `latest`."""

    name = "version"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in ("latest", "-1"):
            return "latest"
        if not value.isdecimal() or not 1 <= int(value) < 2**31:
            self.fail(f"'{value}' is neither a version number nor latest", param, ctx)
        return value


@click.group()
def schemas() -> None:
    """Show, register, compare, export and import schemas."""


@schemas.command("list")
@click.argument("prefix", default="")
@click.option("--deleted", is_flag=True, help="Also soft-deleted subjects and versions.")
@json_option
@registry_options
def list_schemas(prefix: str, deleted: bool, as_json: bool, registry: RegistryAt) -> None:
    """List the subjects that begin with PREFIX, or all.

    \b
      penstock schemas list orders
    """
    with registry.client() as client:
        found: dict[str, list[RegisteredSchema]] = {}
        for schema in client.schemas(prefix, deleted=deleted):
            found.setdefault(schema.subject, []).append(schema)
    if as_json:
        emit_json(
            [
                {
                    "subject": subject,
                    "versions": [each.version for each in versions],
                    "latest": versions[-1].version,
                    "id": versions[-1].id,
                    "type": versions[-1].schema_type,
                }
                for subject, versions in sorted(found.items())
            ]
        )
    elif found:
        rows = [
            (subject, len(versions), versions[-1].version, versions[-1].id, versions[-1].schema_type)
            for subject, versions in sorted(found.items())
        ]
        table(("subject", "versions", "latest", "id", "type"), rows)
    else:
        note(
            f"No subjects{f' that begin with {prefix}' if prefix else ''} in the registry at {registry.url}."
        )


@schemas.command()
@click.argument("subject", required=False)
@click.option("--version", type=VersionType(), default="latest", show_default=True, help="Which version.")
@click.option("--id", "schema_id", metavar="N", type=click.IntRange(0), help="By its id, without a subject.")
@click.option("--raw", is_flag=True, help="Print the text as stored, without formatting.")
@json_option
@registry_options
def show(
    subject: str | None, version: str, schema_id: int | None, raw: bool, as_json: bool, registry: RegistryAt
) -> None:
    """Show a schema, by its subject and version or by its id.

    \b
      penstock schemas show orders-value
      penstock schemas show --id 7
    """
    from penstock.registry.differences import readable

    if (subject is None) == (schema_id is None):
        raise click.UsageError("give either a SUBJECT or --id")
    with registry.client() as client:
        if subject is not None:
            found = _version(client, subject, version, deleted=True)
            where = [{"subject": found.subject, "version": found.version}]
        else:
            assert schema_id is not None
            found = client.by_id(schema_id)
            where = client.request("GET", "schemas", "ids", str(schema_id), "versions")
    if as_json:
        emit_json(_description(found) | ({"versions": where} if subject is None else {}))
        return
    places = ", ".join(f"{place['subject']} version {place['version']}" for place in where)
    note(f"{places or 'no version'}: id {found.id}, {found.schema_type}")
    for each in found.references:
        note(f"  {each.name} is {each.subject} version {each.version}")
    click.echo(found.schema.rstrip("\n") if raw else readable(found.schema))


@schemas.command()
@click.argument("subject")
@file_argument
@type_option
@reference_option
@normalize_option
@json_option
@registry_options
def register(
    subject: str,
    file: str,
    schema_type: str | None,
    references: tuple[str, ...],
    normalize: bool,
    as_json: bool,
    registry: RegistryAt,
) -> None:
    """Register the schema in FILE (- is stdin) as the next version of SUBJECT.

    \b
      penstock schemas register orders-value order.avsc
      penstock schemas register orders-value order.proto --reference customer.proto=customers:1
    """
    from penstock.registry.client import RequestRefused, schema_body

    body = schema_body(read_schema(file), type_of(file, schema_type), references_of(references))
    with registry.client() as client:
        try:
            schema_id = client.register(subject, body, normalize=normalize)
        except RequestRefused as error:
            if error.status != INCOMPATIBLE:
                raise
            raise incompatible(client, subject, body, error, file) from error
        found = client.look_up(subject, body, normalize=normalize)
    if as_json:
        emit_json({"subject": subject, "version": found.version, "id": schema_id})
    else:
        click.echo(f"{subject}: version {found.version}, id {schema_id}")


@schemas.command()
@click.argument("subject")
@file_argument
@click.option(
    "--version", type=VersionType(), help="Against this version only. Default: as a registration would check."
)
@type_option
@reference_option
@normalize_option
@json_option
@registry_options
def check(
    subject: str,
    file: str,
    version: str | None,
    schema_type: str | None,
    references: tuple[str, ...],
    normalize: bool,
    as_json: bool,
    registry: RegistryAt,
) -> None:
    """Check whether the schema in FILE (- is stdin) may follow what SUBJECT has. Exit code 1: it may not.

    \b
      penstock schemas check orders-value order.avsc
    """
    from penstock.registry.client import schema_body

    body = schema_body(read_schema(file), type_of(file, schema_type), references_of(references))
    with registry.client() as client:
        messages = client.compatibility(subject, body, version, normalize=normalize)
    verdict = take_apart(messages or (), body["schema"])
    if as_json:
        emit_json(
            {
                "subject": subject,
                "compatible": messages is None,
                "reasons": [reason.as_json() for reason in verdict.reasons],
            }
        )
    elif messages is None:
        click.echo(f"{subject}: compatible")
    else:
        tell(verdict)
    if messages is not None:
        raise CommandFailed(f"the schema in {file} is incompatible with {measure(subject, verdict)}.")


@schemas.command()
@click.argument("subject")
@click.argument("old", type=VersionType(), required=False)
@click.argument("new", type=VersionType(), required=False)
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Compare OLD (default: latest) with the schema in this file.",
)
@type_option
@reference_option
@click.option("--text", is_flag=True, help="Show a line diff.")
@click.option("--exit-code", is_flag=True, help="Exit code 1 when there is a difference.")
@json_option
@registry_options
def diff(
    subject: str,
    old: str | None,
    new: str | None,
    file: str | None,
    schema_type: str | None,
    references: tuple[str, ...],
    text: bool,
    exit_code: bool,
    as_json: bool,
    registry: RegistryAt,
) -> None:
    """Show how two versions of SUBJECT differ, or a version and a file. Default: the last two versions.

    \b
      penstock schemas diff orders-value 1 3
      penstock schemas diff orders-value --file order.avsc
    """
    from penstock.registry.client import RegisteredSchema, parse_schema
    from penstock.registry.differences import changes, text_difference

    if file is not None and new is not None:
        raise click.UsageError("--file is compared with one version, not with two")
    with registry.client() as client:
        if file is None and old is None:
            numbers = client.versions(subject)
            if len(numbers) < 2:
                raise CommandFailed(f"{subject} has one version only: there is nothing to compare it with.")
            old = str(numbers[-2])
        before = _version(client, subject, old or "latest", deleted=True)
        if file is None:
            after = _version(client, subject, new or "latest", deleted=True)
            name = f"{subject} version {after.version}"
        else:
            after = RegisteredSchema(
                0,
                type_of(file, schema_type),
                read_schema(file),
                references_of(references) or before.references,
            )
            name = file
        if before.schema_type != after.schema_type:
            raise CommandFailed(
                f"{subject} version {before.version} is {before.schema_type}, {name} is {after.schema_type}: "
                "these cannot be compared."
            )
        old_schema = client.parse(before)
        new_schema = parse_schema(
            after.schema_type, after.schema, client.resolve_references(after.references, subject), strict=True
        )
    found = changes(old_schema, new_schema)
    lines = text_difference(
        before.schema, new_schema.canonical(), f"{subject} version {before.version}", name
    )
    if as_json:
        emit_json(
            [
                {"change": each.kind, "place": each.place, "before": each.before, "after": each.after}
                for each in found
            ]
        )
    elif text:
        for line in lines:
            click.echo(line)
    elif found:
        signs = {"added": "+", "removed": "-", "changed": "~"}
        for each in found:
            said = [part for part in (each.before, each.after) if part is not None]
            click.echo(f"{signs[each.kind]} {each.place}: {' -> '.join(said)}")
    else:
        note(f"{subject} version {before.version} and {name} are identical.")
    if exit_code and (found or (text and lines)):
        raise click.exceptions.Exit(1)


@schemas.command()
@click.argument("subject")
@click.option("--version", type=VersionType(), help="Only this version.")
@click.option(
    "--permanent", is_flag=True, help="Delete permanently. Records with its id may no longer decode."
)
@json_option
@registry_options
def delete(subject: str, version: str | None, permanent: bool, as_json: bool, registry: RegistryAt) -> None:
    """Delete a subject or one version: softly, so that its id still resolves, or permanently.

    \b
      penstock schemas delete orders-value --version 2
    """
    from penstock.registry.client import RequestRefused

    path = ("subjects", subject) if version is None else ("subjects", subject, "versions", version)
    softly_deleted = (40404, 40406)
    with registry.client() as client:
        if version == "latest":
            path = (*path[:-1], str(client.version(subject).version))
        deleted: Any = None
        try:
            deleted = client.request("DELETE", *path)
        except RequestRefused as error:
            if not (permanent and error.code in softly_deleted):
                raise _explained(client, subject, error) from error
        if permanent:
            deleted = client.request("DELETE", *path, permanent=True)
    numbers = deleted if isinstance(deleted, list) else [deleted]
    if as_json:
        emit_json({"subject": subject, "versions": numbers, "permanent": permanent})
    else:
        shown = ", ".join(map(str, numbers))
        click.echo(f"{subject}: {'version' if len(numbers) == 1 else 'versions'} {shown} deleted"
                   f"{' permanently' if permanent else ''}")  # fmt: skip


@schemas.command()
@click.argument("subject", required=False)
@click.option(
    "--compatibility",
    type=click.Choice(LEVELS, case_sensitive=False),
    help="What a new version must be compatible with.",
)
@click.option("--mode", type=click.Choice(MODES, case_sensitive=False), help="What may be written.")
@click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True, help="Another setting; JSON, or a bare word."
)
@click.option(
    "--unset", is_flag=True, help="Remove this setting, so that the setting of the next level applies again."
)
@click.option("--force", is_flag=True, help="Set the mode IMPORT although schemas exist.")
@json_option
@registry_options
def config(
    subject: str | None,
    compatibility: str | None,
    mode: str | None,
    settings: tuple[str, ...],
    unset: bool,
    force: bool,
    as_json: bool,
    registry: RegistryAt,
) -> None:
    """Show or change the configuration and mode of SUBJECT or, without one, of the registry.

    \b
      penstock schemas config
      penstock schemas config orders-value --compatibility FULL_TRANSITIVE
      penstock schemas config --set normalize=true
    """
    wanted = {name: _json_or_word(value) for name, value in key_values(settings, "--set").items()}
    if compatibility is not None:
        wanted["compatibility"] = compatibility.upper()
    if unset and (wanted or mode):
        raise click.UsageError("--unset excludes settings")
    with registry.client() as client:
        if unset:
            for what, now in (("mode", client.mode(subject)), ("config", client.config(subject))):
                if now is not None:
                    client.unset(what, subject)
        if wanted:
            client.put("config", subject, wanted)
        if mode is not None:
            client.put("mode", subject, {"mode": mode.upper()}, force=force)
        own, own_mode = client.config(subject) or {}, client.mode(subject)
        whole = client.config(subject, effective=True) or {}
        whole_mode = client.mode(subject, effective=True)
    rows: list[tuple[str, object, str]] = []
    source = "registry" if subject is None else "subject"
    for name, value in sorted({**whole, "mode": whole_mode}.items()):
        is_own = own_mode is not None if name == "mode" else name in own
        rows.append((name, value, source if is_own else "above"))
    if as_json:
        emit_json(
            {
                "subject": subject,
                "settings": [{"name": name, "value": value, "from": where} for name, value, where in rows],
            }
        )
    else:
        shown = [(name, _shown(value), where) for name, value, where in rows]
        table(("setting", "value", "set by"), shown, title=subject)


@schemas.command()
@click.argument("prefix", default="")
@click.option(
    "--output",
    "-o",
    required=True,
    type=click.Path(),
    help="A file of JSON lines (- is stdout), or a directory (ends in /, or exists).",
)
@json_option
@registry_options
def export(prefix: str, output: str, as_json: bool, registry: RegistryAt) -> None:
    """Write all subjects, or those that begin with PREFIX, with versions, ids, configurations and modes.

    Referenced schemas are included, and come first. `schemas import` loads the result.

    \b
      penstock schemas export -o schemas.jsonl
    """
    from penstock.cli.schemas.export import export_to

    with registry.client() as client:
        counts = export_to(client, prefix, output)
    if as_json and output != "-":
        emit_json({"output": output, **counts})
    else:
        note(f"{plural(counts['schemas'], 'schema')} of {plural(counts['subjects'], 'subject')} written to "
             f"{'stdout' if output == '-' else output}.")  # fmt: skip


@schemas.command("import")
@click.argument("source", type=click.Path(exists=True, allow_dash=True))
@click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
@json_option
@registry_options
def import_schemas(source: str, dry_run: bool, as_json: bool, registry: RegistryAt) -> None:
    """Load what `export` wrote, with the same ids and versions. Schemas that already exist are skipped.

    An interrupted import can be run again. A version or id that is taken by another schema is an
    error, and is found before anything is written.

    \b
      penstock schemas import schemas.jsonl --registry http://other:8081
    """
    from penstock.cli.schemas.load import import_from

    with registry.client() as client:
        counts = import_from(client, source, dry_run=dry_run)
    if as_json:
        emit_json({"source": source, "dry_run": dry_run, **counts})
    else:
        verb = "would be imported" if dry_run else "imported"
        note(f"{plural(counts['imported'], 'schema')} {verb}, {counts['present']:,} already existed.")


# Inside


def _version(client: RegistryClient, subject: str, version: str, *, deleted: bool) -> RegisteredSchema:
    from penstock.registry.client import RequestRefused

    try:
        return client.version(subject, version, deleted=deleted and version != "latest")
    except RequestRefused as error:
        raise _explained(client, subject, error) from error


def _explained(client: RegistryClient, subject: str, error: Any) -> Exception:
    """An unknown subject with the nearest one; an unknown version with those that there are."""
    from penstock.registry.client import SUBJECT_NOT_FOUND, VERSION_NOT_FOUND

    if error.code == SUBJECT_NOT_FOUND:
        known = client.subjects()
        return CommandFailed(f"no subject '{subject}' in the registry.{did_you_mean(subject, known)}")
    if error.code == VERSION_NOT_FOUND:
        numbers = ", ".join(map(str, client.versions(subject, deleted=True)))
        return CommandFailed(f"{error.message.rstrip('.')}: '{subject}' has {numbers}.")
    return error  # type: ignore[no-any-return]


def _description(schema: RegisteredSchema) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if schema.version:
        found |= {"subject": schema.subject, "version": schema.version}
    return found | {"id": schema.id, **schema.body}


def _json_or_word(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
