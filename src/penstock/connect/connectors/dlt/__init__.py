"""dlt: any resource of the data load tool as a source, any of its destinations as a sink."""

import importlib.util

from penstock.connect.connectors.dlt.sink import DltSink
from penstock.connect.connectors.dlt.source import DltSource

if importlib.util.find_spec("dlt") is None:
    # The library takes seconds to import; listing plugins must not wait for it.
    raise ModuleNotFoundError("dlt is not installed", name="dlt")

__all__ = ["DltSink", "DltSource"]
