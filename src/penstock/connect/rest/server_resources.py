"""Routes about the worker: version, plugins, loggers, health."""

from __future__ import annotations

from penstock import __version__
from penstock.connect.rest.app import RestAnswer, RestCall, RestRoute
from penstock.connect.rest.errors import RestError, bad_request
from penstock.connect.rest.resources import result_of, texts
from penstock.connect.worker.configs import logger_record
from penstock.connect.worker.herder import Herder
from penstock.web.loggers import UnknownLevel, UnknownLogger, checked_level


class ServerResources:
    def __init__(self, herder: Herder, cluster_id: str) -> None:
        self._herder = herder
        self._cluster_id = cluster_id
        self._loggers = herder.loggers

    def routes(self) -> list[RestRoute]:
        return [
            RestRoute("GET", "/", self.root),
            RestRoute("GET", "/health", self.health),
            RestRoute("GET", "/connector-plugins", self.plugins),
            RestRoute("GET", "/connector-plugins/{plugin}/config", self.plugin_config),
            RestRoute("PUT", "/connector-plugins/{plugin}/config/validate", self.validate),
            RestRoute("GET", "/admin/loggers", self.loggers),
            RestRoute("GET", "/admin/loggers/{logger}", self.logger),
            RestRoute("PUT", "/admin/loggers/{logger}", self.set_logger, by_leader=_for_all_workers),
        ]

    async def root(self, call: RestCall) -> RestAnswer:
        return RestAnswer(
            {"version": __version__, "commit": "penstock", "kafka_cluster_id": self._cluster_id}
        )

    async def health(self, call: RestCall) -> RestAnswer:
        if self._herder.members is None:
            return RestAnswer(
                {"status": "starting", "message": "Worker has not joined its group, or was removed from it."},
                503,
            )
        message = "Worker has completed startup and is ready to handle requests."
        return RestAnswer({"status": "healthy", "message": message})

    async def plugins(self, call: RestCall) -> RestAnswer:
        only = call.flag("connectorsOnly", True)
        answer = await self._herder.scout.ask("plugins" if only else "all_plugins")
        return RestAnswer(result_of(answer))

    async def plugin_config(self, call: RestCall) -> RestAnswer:
        answer = await self._herder.scout.ask("config", name=call.path["plugin"])
        if "unknown_plugin" in answer:
            raise RestError(404, f"Unknown plugin {call.path['plugin']}.")
        return RestAnswer(result_of(answer))

    async def validate(self, call: RestCall) -> RestAnswer:
        body = call.json()
        if not isinstance(body, dict):
            raise bad_request("The body must be an object of settings")
        config = texts(body)
        plugin = call.path["plugin"]
        given = config.get("connector.class")
        if given is not None and _short(given) != _short(plugin):
            raise bad_request(f"Included connector type {given} does not match request type {plugin}")
        answer = await self._herder.scout.ask("validate", name=plugin, config=config)
        if "unknown_plugin" in answer:
            raise RestError(500, answer["unknown_plugin"])  # Kafka Connect uses this status only here
        return RestAnswer(result_of(answer))

    # Loggers

    async def loggers(self, call: RestCall) -> RestAnswer:
        return RestAnswer(self._loggers.all())

    async def logger(self, call: RestCall) -> RestAnswer:
        try:
            return RestAnswer(self._loggers.one(call.path["logger"]))
        except UnknownLogger as error:
            raise RestError(404, str(error)) from error

    async def set_logger(self, call: RestCall) -> RestAnswer:
        body = call.json()
        level = body.get("level") if isinstance(body, dict) else None
        if level is None:
            raise bad_request("Desired 'level' parameter was not specified in request.")
        name, level = call.path["logger"], str(level)
        try:
            if not _for_all_workers(call):
                return RestAnswer(self._herder.set_logger(name, level))
            record = logger_record(name, checked_level(level))
            return RestAnswer(None, 204, offset=await self._herder.change(lambda: [record]))
        except (UnknownLevel, UnknownLogger) as error:
            raise RestError(404, str(error)) from error


def _for_all_workers(call: RestCall) -> bool:
    """KIP-976: a request without a level is rejected by any worker."""
    return call.values("scope")[-1:] == ["cluster"]


def _short(name: str) -> str:
    """The name of a class without its package and without "Connector", as in Kafka Connect."""
    return name.rpartition(".")[2].removesuffix("Connector")
