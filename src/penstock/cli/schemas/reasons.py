"""Why a registry rejects a schema, printed one line for each field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.cli.failure import CommandFailed
from penstock.cli.output import note
from penstock.registry.reasons import Verdict, measure, sentence, take_apart

if TYPE_CHECKING:
    from penstock.registry.client import RegistryClient, RequestRefused


def tell(verdict: Verdict) -> None:
    for reason in verdict.reasons:
        note(f"  {sentence(reason)}")


def incompatible(
    client: RegistryClient, subject: str, body: dict[str, Any], error: RequestRefused, file: str
) -> CommandFailed:
    """A registration that was refused with 409: the reasons are printed, the failure is what to raise."""
    messages = client.compatibility(subject, body) or [error.message]
    verdict = take_apart(messages, body["schema"])
    tell(verdict)
    return CommandFailed(
        f"the schema in {file} is incompatible with {measure(subject, verdict)}; nothing was registered."
    )
