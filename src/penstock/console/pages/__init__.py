"""One file for each page; `register` serves them all."""

from __future__ import annotations

from penstock.console.site import Site


def register(site: Site) -> None:
    from penstock.console.pages import (
        acls,
        connectors,
        group,
        groups,
        overview,
        placement,
        quotas,
        schemas,
        topic,
        topics,
        transactions,
        users,
    )

    for page in (overview, topics, topic, groups, group, schemas, connectors, transactions):
        page.register(site)
    for page in (placement, users, acls, quotas):
        page.register(site)
