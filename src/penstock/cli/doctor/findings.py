"""Findings as lines for people, or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from penstock.admin.doctor.finding import Finding
from penstock.admin.words import plural
from penstock.cli.failure import FAILED
from penstock.cli.output import emit_json


def report(checks: Sequence[str], findings: Sequence[Finding], as_json: bool) -> None:
    """Shows them, errors first. Exits with 1 if there is an error."""
    ordered = sorted(findings, key=lambda each: each.severity != "error")
    errors = sum(each.severity == "error" for each in findings)
    if as_json:
        emit_json(
            {"healthy": not errors, "checks": list(checks), "findings": [asdict(one) for one in ordered]}
        )
    else:
        for each in ordered:
            word = "what:   " if each.severity == "error" else "warning:"
            click.echo(f"{each.where}\n  {word} {each.what}\n  to do:   {each.remedy}\n")
        summary = plural(errors, "problem") if errors else "no problems"
        if errors < len(findings):
            summary += ", " + plural(len(findings) - errors, "warning")
        click.echo(f"Checked {', '.join(checks)}: {summary}.")
    if errors:
        raise click.exceptions.Exit(FAILED)
