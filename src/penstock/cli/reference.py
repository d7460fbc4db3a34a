"""docs/cli.md, made from the commands themselves: `python -m penstock.cli.reference > docs/cli.md`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from penstock.cli.main import EPILOG, PROGRAM, cli

_WIDTH: dict[str, Any] = {"max_content_width": 100, "terminal_width": 100}
_INTRODUCTION = f"""\
# The command line

Generated from the commands by `python -m penstock.cli.reference > docs/cli.md`; a test compares the two.

Every command but `up`, `broker` and `log` is a Kafka client and works with any Kafka cluster (`--bootstrap`).
{EPILOG} A broken pipe (`| head`) is not a failure.
"""


def render() -> str:
    """The whole reference as Markdown."""
    root = click.Context(cli, info_name=PROGRAM, **_WIDTH, **cli.context_settings)
    parts = [_INTRODUCTION]
    for context in _walk(root):
        level = "#" * min(3, 1 + context.command_path.count(" "))
        heading = f"{level} {context.command_path}\n\n" if context.parent is not None else ""
        parts.append(f"{heading}```\n{context.get_help().rstrip()}\n```\n")
    return "\n".join(parts)


def _walk(context: click.Context) -> Iterator[click.Context]:
    yield context
    command = context.command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from _walk(click.Context(child, info_name=name, parent=context, **_WIDTH))


if __name__ == "__main__":
    click.echo(render(), nl=False)
