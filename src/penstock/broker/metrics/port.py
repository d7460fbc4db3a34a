"""The metrics port of a broker: its settings, start and stop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector

from penstock.broker.metrics.collector import BrokerCollector
from penstock.broker.metrics.loop_lag import LoopLag
from penstock.config import BrokerConfig
from penstock.config.listeners import parse_address
from penstock.web.access import AccessSettings
from penstock.web.metrics import MetricsSettings, serve_metrics

if TYPE_CHECKING:
    from penstock.broker.metrics.collector import CollectorParts
    from penstock.broker.net.dispatch import Dispatcher


class MetricsPort:
    """Serves in a thread as soon as it is created. `address` has the port that was actually bound."""

    def __init__(
        self,
        broker: CollectorParts,
        dispatcher: Dispatcher,
        loop: asyncio.AbstractEventLoop,
        config: BrokerConfig,
    ) -> None:
        host, port = parse_address(config.metrics_listener)
        self._lag = LoopLag(loop)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(BrokerCollector(broker, dispatcher, self._lag))
        ProcessCollector(registry=registry)
        certificate = config.metrics_ssl_keystore_location
        access = AccessSettings(
            users_file=config.metrics_auth_file,
            jwks=config.metrics_jwks,
            issuer=config.metrics_jwt_issuer,
            audience=config.metrics_jwt_audience,
            rate=config.metrics_max_request_rate,
        )
        settings = MetricsSettings(port, access, certificate, certificate, host)
        self._server = serve_metrics(registry, settings)
        scheme = "http" if certificate is None else "https"
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{scheme}://{shown}:{self._server.server_port}/metrics"

    def start(self) -> None:
        """Called on the event loop."""
        self._lag.start()

    def stop(self) -> None:
        self._lag.stop()
        self._server.shutdown()
        self._server.server_close()
