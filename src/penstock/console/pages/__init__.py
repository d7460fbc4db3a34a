"""One file for each page; `register` serves them all."""

from __future__ import annotations

import importlib

from penstock.console.site import Site


def register(site: Site) -> None:
    from penstock.console.pages import (
        acls,
        connectors,
        group,
        groups,
        lineage,
        overview,
        pipelines,
        placement,
        quotas,
        schemas,
        sql,
        topic,
        topics,
        transactions,
        users,
    )

    ours = (
        overview,
        topics,
        topic,
        groups,
        group,
        schemas,
        connectors,
        sql,
        pipelines,
        lineage,
        transactions,
        placement,
        users,
        acls,
        quotas,
    )
    for page in ours:
        page.register(site)
    for name in site.settings.pages:
        more = importlib.import_module(name)
        site.navigation += more.NAVIGATION
        more.register(site)
