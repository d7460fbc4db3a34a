"""What became of each of several things that one command was to change: topics, groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failure import CommandFailed
from penstock.cli.output import emit_json, note

if TYPE_CHECKING:
    from concurrent.futures import Future


def report_each(
    futures: Mapping[str, Future[Any]],
    done: str,
    ignored: Mapping[int, str],
    as_json: bool,
    explain: Callable[[str, Any], CommandFailed],
) -> None:
    """One line (or JSON entry) for each; fails in the end if any failed, after reporting all.

    `ignored` has the error codes that do not count as failures, and what they are called instead of `done`.
    """
    from confluent_kafka import KafkaException

    results: list[dict[str, Any]] = []
    for name, future in futures.items():
        try:
            future.result()
            results.append({"name": name, "result": done})
        except KafkaException as error:
            code = error.args[0].code()
            if code in ignored:
                results.append({"name": name, "result": ignored[code]})
            else:
                message = explain(name, error.args[0]).message
                results.append({"name": name, "result": "failed", "error": message})
    if as_json:
        emit_json(results)
    for result in results:
        if result["result"] != "failed" and not as_json:
            click.echo(f"{result['name']}: {result['result']}")
    failures = [result["error"] for result in results if "error" in result]
    for message in failures[:-1]:
        note(f"Error: {message}")
    if failures:
        raise CommandFailed(failures[-1])
