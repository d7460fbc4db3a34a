"""One file for each page; `register` serves them all."""

from __future__ import annotations

from penstock.console.site import Site


def register(site: Site) -> None:
    from penstock.console.pages import (
        connectors,
        group,
        groups,
        overview,
        schemas,
        topic,
        topics,
        transactions,
    )

    for page in (overview, topics, topic, groups, group, schemas, connectors, transactions):
        page.register(site)
