"""Writes docs/configuration.md from the tables: `python -m penstock.config.docs > docs/configuration.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from penstock.config.broker import BROKER_CONFIGS
from penstock.config.client_metrics import CLIENT_METRICS_CONFIGS
from penstock.config.group import GROUP_CONFIGS
from penstock.config.topic import TOPIC_CONFIGS
from penstock.config.types import LONG_MAX, ConfigDef

_HEAD = """\
# Configuration

Names, meanings and defaults are Kafka's, except where a row says otherwise. A setting that is not listed here
is refused by name where a broker starts and where a topic or group is altered. A running broker accepts it
from AlterConfigs, as Kafka does: it is kept without effect, and the log has a warning.

A topic's setting is its own (`penstock topics create --config`, `penstock configs`), or else the broker
setting in the column "broker default", the strongest first. *Dynamic* broker settings can be altered while
the broker runs, for one broker or for all; the others are read when it starts. A group's setting is altered
as a resource of type GROUP, or else is the broker setting in its column "broker default". A client metrics
subscription is altered as a resource of type CLIENT_METRICS (`penstock clients subscribe`).

This page is written by `python -m penstock.config.docs > docs/configuration.md`; a test compares the two.
"""


def render() -> str:
    topics = sorted(TOPIC_CONFIGS.values(), key=lambda row: row.name)
    groups = sorted(GROUP_CONFIGS.values(), key=lambda row: row.name)
    client_metrics = CLIENT_METRICS_CONFIGS.values()
    brokers = BROKER_CONFIGS.values()
    return "\n".join(
        (
            _HEAD,
            "## Topics\n",
            *_table(
                ("name", "default", "allowed", "broker default", "meaning"),
                ((_code(row.name), _default(row), row.allowed, _synonyms(row), row.doc) for row in topics),
            ),
            "",
            "## Groups\n",
            *_table(
                ("name", "default", "allowed", "broker default", "meaning"),
                ((_code(row.name), _default(row), row.allowed, _synonyms(row), row.doc) for row in groups),
            ),
            "",
            "## Client metrics subscriptions\n",
            *_table(
                ("name", "default", "allowed", "meaning"),
                ((_code(row.name), _default(row), row.allowed, row.doc) for row in client_metrics),
            ),
            "",
            "## Brokers\n",
            *_table(
                ("name", "default", "allowed", "dynamic", "meaning"),
                (
                    (_code(row.name), _default(row), row.allowed, "yes" if row.dynamic else "", row.doc)
                    for row in brokers
                ),
            ),
            "",
        )
    )


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterable[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _code(text: str) -> str:
    return f"`{text}`"


def _default(row: ConfigDef) -> str:
    if row.default is None:
        return "not set"
    if row.default == LONG_MAX:
        return "`9223372036854775807` (never)"
    return _code(row.format(row.default) or "") if row.default not in ((), "") else "empty"


def _synonyms(row: ConfigDef) -> str:
    return ", ".join(_code(synonym.name) for synonym in row.synonyms)


if __name__ == "__main__":
    sys.stdout.write(render())
