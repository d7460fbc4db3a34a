"""A connector's process: it divides the work into tasks, again whenever the connector reports a change."""

from __future__ import annotations

import logging
from typing import Any

from penstock.connect import plugins
from penstock.connect.api import Connector
from penstock.connect.errors import ConnectError
from penstock.connect.providers import resolve
from penstock.connect.runtime.definitions import COMMON
from penstock.connect.runtime.task import TaskSpec
from penstock.connect.secrets import with_references
from penstock.connect.settings import parse

log = logging.getLogger(__name__)


def run(spec: TaskSpec) -> None:
    given = dict(spec.connector_config)
    config = resolve(given)
    settings = parse(COMMON, config)
    max_tasks, enforce = settings["tasks.max"], settings["tasks.max.enforce"]
    connector = plugins.connector(config["connector.class"])()
    connector.start(config)
    try:
        _send_tasks(spec, connector, given, config, max_tasks, enforce)
        spec.channel.send("running")
        if type(connector).changed is Connector.changed:
            return
        while not spec.stopping.wait(connector.poll_changes_seconds):
            if connector.changed():
                _send_tasks(spec, connector, given, config, max_tasks, enforce)
    finally:
        connector.stop()


def _send_tasks(
    spec: TaskSpec,
    connector: Connector,
    given: dict[str, str],
    config: dict[str, str],
    max_tasks: int,
    enforce: bool,
) -> None:
    task_class: Any = getattr(connector, "task_class", None)
    configs = [
        {**each, "task.class": plugins.full_name(task_class)} for each in connector.task_configs(max_tasks)
    ]
    if len(configs) > max_tasks:
        text = (
            f"The connector {spec.connector} has generated {len(configs)} tasks, which is greater than "
            f"{max_tasks}, the maximum number of tasks it is configured to create."
        )
        if enforce:
            raise ConnectError(text)
        log.warning("%s", text)
    # Store the reference, not the value that a config provider returned.
    stored = [with_references(given, config, each) for each in configs]
    spec.channel.send("task_configs", configs=stored)
