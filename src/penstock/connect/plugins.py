"""Finds plugins: built in, by entry point, by the Java class that they replace, and by class name.

Only processes that run connectors import plugin code: this module is not used in the worker's own process.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from penstock.config.types import did_you_mean
from penstock.connect.api import BatchSourceTask, Connector, SinkConnector, SourceConnector
from penstock.connect.converters import CONVERTERS, HEADER_CONVERTERS, Converter
from penstock.connect.errors import ConnectError
from penstock.connect.transforms import PREDICATES, TRANSFORMS

log = logging.getLogger(__name__)

ENTRY_POINTS = "penstock.connect"

_BUILT_IN = (
    "penstock.connect.connectors.file_stream:FileStreamSource",
    "penstock.connect.connectors.file_stream:FileStreamSink",
    "penstock.connect.connectors.mirror:MirrorSourceConnector",
    "penstock.connect.connectors.mirror:MirrorCheckpointConnector",
    "penstock.connect.connectors.mirror:MirrorHeartbeatConnector",
    "penstock.connect.connectors.directories:DirectorySource",
    "penstock.connect.connectors.directories:DirectorySink",
    "penstock.connect.connectors.datagen:Datagen",
    "penstock.connect.connectors.lake:LakeSink",
    "penstock.connect.connectors.lake:LakeSource",
    "penstock.connect.connectors.lake:TableSink",
)


class UnknownPlugin(ConnectError):
    """There is no class of this name, or it is not a connector."""


@cache
def connectors() -> dict[str, type[Connector]]:
    """All installed connectors, by full class name. Those that cannot be imported are left out."""
    found: dict[str, type[Connector]] = {}
    for each in _each_connector():
        found[full_name(each)] = each
    return found


def _each_connector() -> Iterator[type[Connector]]:
    yield from _built_in()
    yield from _by_entry_point()


def _built_in() -> Iterator[type[Connector]]:
    for reference in _BUILT_IN:
        module, _, name = reference.partition(":")
        yield getattr(importlib.import_module(module), name)


def _by_entry_point() -> Iterator[type[Connector]]:
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            plugin = entry.load()
        except ImportError as error:
            log.info("plugin %s is not available: it needs %s", entry.name, error.name)
            continue
        except Exception:
            log.exception("plugin %s is not available: it cannot be imported", entry.name)
            continue
        if inspect.isclass(plugin) and issubclass(plugin, Connector):
            yield plugin


def full_name(plugin: type[Any]) -> str:
    return f"{plugin.__module__}.{plugin.__qualname__}"


def names_of(plugin: type[Connector]) -> set[str]:
    """As in Kafka Connect: the full name, the class name, the name without "Connector"; and the aliases."""
    names = {full_name(plugin), plugin.__name__, plugin.__name__.removesuffix("Connector")}
    for alias in plugin.aliases:
        last = alias.rpartition(".")[2]
        names |= {alias, last, last.removesuffix("Connector")}
    return names


def connector(name: str) -> type[Connector]:
    """The class that `connector.class` names. UnknownPlugin suggests similar names."""
    # Entry points come last, so that a task does not import the plugins of others.
    for plugin in _built_in():
        if name in names_of(plugin):
            return plugin
    plugin_class = load(name)
    if plugin_class is not None and inspect.isclass(plugin_class) and issubclass(plugin_class, Connector):
        return plugin_class
    for plugin in _by_entry_point():
        if name in names_of(plugin):
            return plugin
    known = connectors()
    available = ", ".join(
        f"PluginDesc{{klass=class {name}, name='{name}', version='{each.version}', type={kind(each)}}}"
        for name, each in sorted(known.items())
    )
    near = did_you_mean(name, {each for plugin in known.values() for each in names_of(plugin)})
    raise UnknownPlugin(
        f"Failed to find any class that implements Connector and which name matches {name},"
        f"{near} available connectors are: {available}"
    )


def kind(plugin: type[Connector]) -> str:
    return "source" if issubclass(plugin, SourceConnector) else "sink"


def is_sink(plugin: type[Connector]) -> bool:
    return issubclass(plugin, SinkConnector)


def takes_batches(plugin: type[Connector]) -> bool:
    """Whether its tasks return whole record batches."""
    return issubclass(plugin, SourceConnector) and issubclass(plugin.task_class, BatchSourceTask)


def load(name: str) -> Any:
    """The object that a dotted or `module:name` reference refers to; None if it does not exist."""
    module, _, attribute = name.replace(":", ".").rpartition(".")
    if not module:
        return None
    try:
        return getattr(importlib.import_module(module), attribute, None)
    except ImportError as error:
        missing = error.name or ""
        if missing and not (module == missing or module.startswith(f"{missing}.")):
            raise ConnectError(f"{name} needs {missing}, which is not installed") from error
        return None


def converter_class(name: str, *, header: bool = False) -> type[Converter]:
    table = HEADER_CONVERTERS if header else CONVERTERS
    found = table.get(name) or load(name)
    if found is None or not inspect.isclass(found) or not issubclass(found, Converter):
        raise UnknownPlugin(f"Class {name} could not be found.{did_you_mean(name, table)}")
    return found


def transform_class(name: str) -> Any:
    found = TRANSFORMS.get(name) or load(name)
    if found is None:
        raise UnknownPlugin(f"Class {name} could not be found.{did_you_mean(name, TRANSFORMS)}")
    return found


def predicate_class(name: str) -> Any:
    found = PREDICATES.get(name) or load(name)
    if found is None:
        raise UnknownPlugin(f"Class {name} could not be found.{did_you_mean(name, PREDICATES)}")
    return found
