"""The handlers of the routes: connectors, their configuration, status and offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from penstock.connect.concealment import HIDDEN
from penstock.connect.rest.app import RestAnswer, RestCall, RestRoute
from penstock.connect.rest.errors import (
    RestError,
    bad_request,
    invalid,
    not_found,
    unknown,
    unknown_to_restart,
)
from penstock.connect.secrets import hidden
from penstock.connect.worker import statuses as states
from penstock.connect.worker.configs import (
    PAUSED,
    STARTED,
    STOPPED,
    ConnectorState,
    Record,
    Restart,
    Unit,
    connector_record,
    removal_records,
    restart_record,
    target_record,
    task_records,
)
from penstock.connect.worker.herder import Herder, chooses
from penstock.connect.worker.processes import ScoutFailed
from penstock.connect.worker.statuses import Status

_ENDING_SECONDS, _LOOK_SECONDS = 10.0, 0.05
_MASKED = (
    "it stands for a value that was not shown; give the value itself, or a reference such as ${file:PATH}"
)
_NEVER_SECRET = {"name", "connector.class", "tasks.max"}
_INITIAL = {"RUNNING": STARTED, "PAUSED": PAUSED, "STOPPED": STOPPED}


class Resources:
    """Of one worker."""

    def __init__(self, herder: Herder) -> None:
        self._herder = herder
        self._configs = herder.configs
        self._statuses = herder.statuses
        self._types: dict[str, dict[str, Any]] = {}

    def routes(self) -> list[RestRoute]:
        one = "/connectors/{name}"
        return [
            RestRoute("GET", "/connectors", self.list),
            RestRoute("POST", "/connectors", self.create, by_leader=True, repeatable=False),
            RestRoute("GET", one, self.info),
            RestRoute("DELETE", one, self.delete, by_leader=True, repeatable=False),
            RestRoute("GET", f"{one}/config", self.config),
            RestRoute("PUT", f"{one}/config", self.put_config, by_leader=True),
            RestRoute("PATCH", f"{one}/config", self.patch_config, by_leader=True),
            RestRoute("GET", f"{one}/status", self.status),
            RestRoute("GET", f"{one}/tasks", self.tasks),
            RestRoute("POST", f"{one}/tasks", self.put_tasks, by_leader=True),
            RestRoute("GET", one + "/tasks/{task}/status", self.task_status),
            RestRoute("POST", one + "/tasks/{task}/restart", self.restart_task, by_leader=True),
            RestRoute("POST", f"{one}/restart", self.restart, by_leader=True),
            RestRoute("PUT", f"{one}/pause", self.pause, by_leader=True),
            RestRoute("PUT", f"{one}/resume", self.resume, by_leader=True),
            RestRoute("PUT", f"{one}/stop", self.stop, by_leader=True),
            RestRoute("GET", f"{one}/topics", self.topics),
            RestRoute("PUT", f"{one}/topics/reset", self.reset_topics),
            RestRoute("GET", f"{one}/offsets", self.offsets),
            RestRoute("PATCH", f"{one}/offsets", self.alter_offsets, by_leader=True),
            RestRoute("DELETE", f"{one}/offsets", self.reset_offsets, by_leader=True),
        ]

    # Reading

    async def list(self, call: RestCall) -> RestAnswer:
        expand = {part for text in call.values("expand") for part in text.split(",")}
        names = sorted(self._configs.connectors)
        if not expand & {"status", "info"}:
            return RestAnswer(names)
        found: dict[str, dict[str, Any]] = {}
        for name in names:
            entry = found[name] = {}
            # A connector that was just created has no status yet: it is listed without one.
            if "status" in expand and Unit(name) in self._statuses.by_unit:
                entry["status"] = await self._status_of(name)
            if "info" in expand:
                entry["info"] = await self._info_of(name, call)
        return RestAnswer(found)

    async def info(self, call: RestCall) -> RestAnswer:
        return RestAnswer(await self._info_of(call.path["name"], call))

    async def config(self, call: RestCall) -> RestAnswer:
        known = self._known(call)
        return RestAnswer(await self._shown(known, known.config, call))

    async def tasks(self, call: RestCall) -> RestAnswer:
        name, known = call.path["name"], self._known(call)
        return RestAnswer(
            [
                {
                    "id": {"connector": name, "task": number},
                    "config": await self._shown(known, each, call),
                }
                for number, each in enumerate(known.tasks)
            ]
        )

    async def status(self, call: RestCall) -> RestAnswer:
        return RestAnswer(await self._status_of(call.path["name"]))

    async def task_status(self, call: RestCall) -> RestAnswer:
        unit = self._unit(call)
        status = self._statuses.by_unit.get(unit)
        if status is None:
            raise RestError(404, f"No status found for task {unit}")
        return RestAnswer({"id": unit.task, **status.as_json()})

    async def topics(self, call: RestCall) -> RestAnswer:
        name = call.path["name"]
        return RestAnswer({name: {"topics": sorted(self._statuses.topics.get(name, {}))}})

    async def reset_topics(self, call: RestCall) -> RestAnswer:
        self._known(call)
        self._statuses.forget_topics(call.path["name"])
        return RestAnswer(status=202)

    # Changing

    async def create(self, call: RestCall) -> RestAnswer:
        body = call.json()
        if not isinstance(body, dict) or not isinstance(body.get("config"), dict):
            raise bad_request("The body must be an object with name and config")
        name = str(body.get("name") or body["config"].get("name") or "").strip()
        config = texts(body["config"])
        config.setdefault("name", name)
        _check_name(name, config)
        target = STARTED
        if body.get("initial_state") is not None:
            state = str(body["initial_state"]).upper()
            if state not in _INITIAL:
                raise bad_request(f"initial_state must be one of {', '.join(_INITIAL)}, not {state}")
            target = _INITIAL[state]
        if name in self._configs.connectors:
            raise RestError(409, f"Connector {name} already exists")
        await self._validate(name, config)

        def plan() -> list[Record]:
            if name in self._configs.connectors:
                raise RestError(409, f"Connector {name} already exists")
            records = [connector_record(name, config)]
            return [target_record(name, target), *records] if target != STARTED else records

        offset = await self._herder.change(plan)
        if target == STOPPED:
            version = (await self._described(config["connector.class"])).get("version")
            status = Status(states.STOPPED, self._herder.worker_id, version=version)
            self._statuses.put(Unit(name), status)
        location = f"/connectors/{quote(name, safe='')}"
        return RestAnswer(await self._info_of(name, call), 201, {"location": location}, offset)

    async def put_config(self, call: RestCall) -> RestAnswer:
        name = call.path["name"]
        body = call.json()
        if not isinstance(body, dict):
            raise bad_request("The body must be an object of settings")
        config = texts(body)
        config.setdefault("name", name)
        return await self._put(name, config, call)

    async def patch_config(self, call: RestCall) -> RestAnswer:
        name, known = call.path["name"], self._known(call)
        body = call.json()
        if not isinstance(body, dict):
            raise bad_request("The body must be an object of settings")
        merged = {**known.config, **texts({key: value for key, value in body.items() if value is not None})}
        for key, value in body.items():
            if value is None:
                merged.pop(key, None)
        return await self._put(name, merged, call)

    async def _put(self, name: str, config: dict[str, str], call: RestCall) -> RestAnswer:
        _check_name(name, config)
        await self._validate(name, config)
        new = name not in self._configs.connectors
        offset = await self._herder.change(lambda: [connector_record(name, config)])
        headers = {"location": f"/connectors/{quote(name, safe='')}"} if new else {}
        return RestAnswer(await self._info_of(name, call), 201 if new else 200, headers, offset)

    async def delete(self, call: RestCall) -> RestAnswer:
        name = call.path["name"]

        def plan() -> list[Record]:
            return removal_records(name, len(self._known(call).tasks))

        offset = await self._herder.change(plan)
        for unit in self._statuses.of(name):
            self._statuses.forget(unit)
        self._statuses.forget_topics(name)
        return RestAnswer(status=204, offset=offset)

    async def put_tasks(self, call: RestCall) -> RestAnswer:
        """Sent by another worker whose connector has divided its work."""
        self._known(call)
        body = call.json()
        if not isinstance(body, list) or not all(isinstance(each, dict) for each in body):
            raise bad_request("The body must be a list of task configurations")
        offset = await self._herder.put_tasks(call.path["name"], [texts(each) for each in body])
        return RestAnswer({}, offset=offset)

    async def pause(self, call: RestCall) -> RestAnswer:
        return await self._target(call, PAUSED, 202)

    async def resume(self, call: RestCall) -> RestAnswer:
        return await self._target(call, STARTED, 202)

    async def stop(self, call: RestCall) -> RestAnswer:
        return await self._target(call, STOPPED, 204)

    async def _target(self, call: RestCall, target: str, status: int) -> RestAnswer:
        name = call.path["name"]

        def plan() -> list[Record]:
            known = self._configs.connectors.get(name)
            if known is None:
                raise unknown(name)
            if known.target == target:
                return []
            records = [target_record(name, target)]
            # A stopped connector has no tasks; it divides its work again when it is resumed.
            return [*records, *task_records(name, [])] if target == STOPPED else records

        return RestAnswer(status=status, offset=await self._herder.change(plan))

    async def restart(self, call: RestCall) -> RestAnswer:
        name = call.path["name"]
        if name not in self._configs.connectors:
            raise unknown_to_restart(name)
        restart = Restart(name, call.flag("includeTasks"), call.flag("onlyFailed"))
        if restart.include_tasks or restart.only_failed:
            for unit, status in self._statuses.of(name).items():
                if chooses(restart, unit, status.state):
                    self._statuses.put(unit, replace(status, state=states.RESTARTING, trace=None))
        offset = await self._herder.change(lambda: [restart_record(restart)])
        if restart.include_tasks or restart.only_failed:
            return RestAnswer(await self._status_of(name), 202, offset=offset)
        return RestAnswer(status=204, offset=offset)

    async def restart_task(self, call: RestCall) -> RestAnswer:
        unit = self._unit(call)
        known = self._configs.connectors.get(unit.connector)
        if known is None:
            raise unknown_to_restart(unit.connector)
        if unit.task >= len(known.tasks):
            raise RestError(404, f"Unknown task: {unit}")
        restart = Restart(unit.connector, True, False, unit.task)
        return RestAnswer(status=204, offset=await self._herder.change(lambda: [restart_record(restart)]))

    # Offsets

    async def offsets(self, call: RestCall) -> RestAnswer:
        name, known = call.path["name"], self._known(call)
        kind = (await self._described(known.config.get("connector.class", "")))["type"]
        result = result_of(await self._herder.scout.ask("read_offsets", connector=name, kind=kind))
        return RestAnswer({"offsets": result})

    async def alter_offsets(self, call: RestCall) -> RestAnswer:
        body = call.json()
        offsets = body.get("offsets") if isinstance(body, dict) else None
        if not isinstance(offsets, list) or not offsets:
            raise bad_request("Partitions / offsets need to be provided for an alter offsets request")
        for each in offsets:
            if not isinstance(each, dict) or not isinstance(each.get("partition"), dict):
                raise bad_request("Each entry of offsets needs a partition and an offset, both objects")
            if not isinstance(each.get("offset"), dict | None):
                raise bad_request("The offset of an entry must be an object, or null to delete it")
        return await self._alter(call, offsets, "altered")

    async def reset_offsets(self, call: RestCall) -> RestAnswer:
        return await self._alter(call, None, "reset")

    async def _has_ended(self, name: str) -> bool:
        """Whether a stopped connector has fully ended; waits for its tasks for a while."""
        deadline = asyncio.get_running_loop().time() + _ENDING_SECONDS
        while any(self._alive(unit) for unit in self._statuses.of(name)):
            if asyncio.get_running_loop().time() > deadline:
                return False
            await asyncio.sleep(_LOOK_SECONDS)
        return True

    async def _alter(self, call: RestCall, offsets: Any, done: str) -> RestAnswer:
        name, known = call.path["name"], self._known(call)
        if known.target != STOPPED or not await self._has_ended(name):
            raise bad_request(
                "Connectors must be in the STOPPED state before their offsets can be modified. This can be "
                "done for the specified connector by issuing a 'PUT' request to the "
                f"'/connectors/{name}/stop' endpoint"
            )
        checked = result_of(
            await self._herder.scout.ask(
                "alter_offsets",
                connector=name,
                config=dict(known.config),
                offsets=offsets,
                tasks=known.most_tasks,
            )
        )
        if checked:
            return RestAnswer({"message": f"The offsets for this connector have been {done} successfully"})
        return RestAnswer(
            {
                "message": f"The Connect framework-managed offsets for this connector have been {done} "
                "successfully. However, if this connector manages offsets externally, they will need to be "
                f"manually {done} in the system that the connector uses."
            }
        )

    def _alive(self, unit: Unit) -> bool:
        return unit.is_task and self._statuses.by_unit[unit].state in states.ALIVE

    # Shapes

    def _known(self, call: RestCall) -> ConnectorState:
        known = self._configs.connectors.get(call.path["name"])
        if known is None:
            raise not_found(call.path["name"])
        return known

    def _unit(self, call: RestCall) -> Unit:
        number = call.path["task"]
        if not number.isdecimal():
            raise RestError(404, "HTTP 404 Not Found")
        return Unit(call.path["name"], int(number))

    async def _described(self, plugin: str) -> dict[str, Any]:
        """Type and version of a connector's class, requested once."""
        if plugin not in self._types:
            try:
                answer = await self._herder.scout.ask("describe", name=plugin)
            except ScoutFailed:
                return {"type": "unknown"}
            if "result" not in answer:
                return {"type": "unknown"}
            self._types[plugin] = answer["result"]
        return self._types[plugin]

    async def _shown(
        self, known: ConnectorState, config: Mapping[str, str], call: RestCall
    ) -> dict[str, str]:
        """The settings that the caller may see: users who may change them may also see passwords."""
        if call.may_administer:
            return dict(config)
        described = await self._described(known.config.get("connector.class", ""))
        if "passwords" not in described:  # which settings are secret is unknown: treat all as secret
            return hidden(config, passwords=config.keys() - _NEVER_SECRET)
        return hidden(config, described["settings"], described["passwords"])

    async def _info_of(self, name: str, call: RestCall) -> dict[str, Any]:
        known = self._configs.connectors.get(name)
        if known is None:
            raise not_found(name)
        described = await self._described(known.config.get("connector.class", ""))
        return {
            "name": name,
            "config": await self._shown(known, known.config, call),
            "tasks": [{"connector": name, "task": number} for number in range(len(known.tasks))],
            "type": described["type"],
        }

    async def _status_of(self, name: str) -> dict[str, Any]:
        known = self._configs.connectors.get(name)
        own = self._statuses.by_unit.get(Unit(name))
        if known is None or own is None:
            raise RestError(404, f"No status found for connector {name}")
        described = await self._described(known.config.get("connector.class", ""))
        found = []
        for number in range(len(known.tasks)):
            status = self._statuses.by_unit.get(Unit(name, number))
            if status is not None:
                found.append({"id": number, **status.as_json()})
        return {"name": name, "connector": own.as_json(), "tasks": found, "type": described["type"]}

    async def _validate(self, name: str, config: Mapping[str, str]) -> None:
        plugin = config.get("connector.class")
        if not plugin:
            shown = ", ".join(f"{key}={value}" for key, value in hidden(config).items())
            raise bad_request(f"Connector config {{{shown}}} contains no connector type")
        masked = sorted(key for key, value in config.items() if HIDDEN in value)
        if masked:
            raise invalid([f"Invalid value {HIDDEN} for configuration {key}: {_MASKED}" for key in masked])
        answer = await self._herder.scout.ask("validate", name=plugin, config=dict(config))
        result = result_of(answer)
        errors = [text for each in result["configs"] for text in each["value"]["errors"]]
        if errors:
            raise invalid(errors)


def result_of(answer: dict[str, Any]) -> Any:
    if "result" in answer:
        return answer["result"]
    if "unknown_plugin" in answer:
        raise bad_request(answer["unknown_plugin"])
    if "refused" in answer:
        raise bad_request(answer["refused"])
    raise RestError(500, answer.get("failed", "plugin code failed"))


def texts(config: Mapping[str, Any]) -> dict[str, str]:
    """Values as text: clients also send numbers and booleans."""
    found = {}
    for name, value in config.items():
        if value is None:
            continue
        if isinstance(value, bool):
            found[str(name)] = "true" if value else "false"
        elif isinstance(value, (str, int, float)):
            found[str(name)] = str(value)
        else:
            raise bad_request(f"The value of {name} must be text, a number or a boolean")
    return found


def _check_name(name: str, config: Mapping[str, str]) -> None:
    if not name:
        raise invalid(["Invalid value  for configuration name: String may not be empty"])
    if any(ord(char) < 32 or ord(char) == 127 for char in name) or len(name) > 249:
        raise bad_request("Connector names have no control characters and at most 249 characters")
    if config["name"] != name:
        raise bad_request(
            f"Connector name configuration ({config['name']}) doesn't match connector name in the URL "
            f"({name})"
        )
