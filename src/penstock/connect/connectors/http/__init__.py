"""HTTP: polls an API into a topic, and sends records to a webhook."""

from penstock.connect.connectors.http.sink import HttpSink
from penstock.connect.connectors.http.source import HttpSource

__all__ = ["HttpSink", "HttpSource"]
