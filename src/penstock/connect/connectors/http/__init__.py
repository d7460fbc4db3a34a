"""HTTP: an API that is polled to a topic, records to a webhook."""

from penstock.connect.connectors.http.sink import HttpSink
from penstock.connect.connectors.http.source import HttpSource

__all__ = ["HttpSink", "HttpSource"]
