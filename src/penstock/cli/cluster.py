"""`penstock cluster`: the cluster's id and its brokers."""

from __future__ import annotations

import click

from penstock.cli.client import Cluster
from penstock.cli.options import cluster_options, json_option
from penstock.cli.output import emit_json, table


@click.command("cluster")
@json_option
@cluster_options
def cluster(as_json: bool, cluster: Cluster) -> None:
    """Show the cluster and its brokers."""
    future = cluster.admin.describe_cluster(request_timeout=cluster.timeout)
    found = cluster.wait(future, "cannot describe the cluster")
    controller = found.controller.id if found.controller is not None else None
    brokers = [
        {"id": node.id, "host": node.host, "port": node.port, "rack": node.rack or None}
        for node in sorted(found.nodes, key=lambda node: node.id)
    ]
    if as_json:
        emit_json({"id": found.cluster_id, "controller": controller, "brokers": brokers})
        return
    rows = [
        (b["id"], b["host"], b["port"], b["rack"], "controller" if b["id"] == controller else "")
        for b in brokers
    ]
    table(("broker", "host", "port", "rack", "role"), rows, title=f"cluster {found.cluster_id}")
