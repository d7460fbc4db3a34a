"""The process of one connector or task: `python -m penstock.connect.runtime.process`, started by a worker.

The first line of its input says what to run. It ends on request, when its work fails (the worker gets the
error with its trace), or when the worker is gone.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import traceback
from typing import Any

from penstock.connect.concealment import conceal, conceal_log
from penstock.connect.runtime.channel import Channel
from penstock.connect.runtime.clients import WorkerSettings
from penstock.connect.runtime.task import TaskSpec
from penstock.web.log_output import set_up_logging


def main() -> None:
    # The worker gets Ctrl-C, and stops its processes in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Channel()
    set_up_logging()
    conceal_log()
    message = channel.receive()
    sys.path[:0] = [each for each in message.get("plugin_path", ()) if each not in sys.path]
    _set_log_levels(message.get("log_levels", {}))
    try:
        code = _run(message, channel)
    except BaseException as error:  # noqa: BLE001 - the worker has it
        channel.send("failed", trace=conceal("".join(traceback.format_exception(error))))
        code = 1
    logging.shutdown()
    sys.stderr.flush()
    # Threads of libraries and plugins must not keep the process alive.
    os._exit(code)


def _set_log_levels(levels: dict[str, str]) -> None:
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def _run(message: dict[str, Any], channel: Channel) -> int:
    # A batch is thousands of small objects without cycles, which the default thresholds would scan many
    # times.
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    kind = message["kind"]
    worker = WorkerSettings.of(message["worker"])
    if kind == "scout":
        from penstock.connect.runtime.scout import serve

        serve(channel, worker)
        return 0
    spec = TaskSpec(
        message["connector"],
        message.get("task", -1),
        message["connector_config"],
        message.get("config", {}),
        worker,
        channel,
    )
    if message.get("paused"):
        spec.pause(True)

    def on_message(command: dict[str, Any]) -> None:
        match command["do"]:
            case "stop":
                spec.stop()
            case "pause":
                spec.pause(True)
            case "resume":
                spec.pause(False)
            case "log_levels":
                _set_log_levels(command["levels"])

    channel.listen(on_message)
    from penstock.connect import plugins

    plugin = plugins.connector(spec.connector_config["connector.class"])
    channel.send("version", version=plugin.version)
    if kind == "connector":
        from penstock.connect.runtime.connector import run

        run(spec)
    elif plugins.is_sink(plugin):
        from penstock.connect.runtime.sink import SinkRunner

        SinkRunner(spec).run()
    elif plugins.takes_batches(plugin):
        from penstock.connect.runtime.batch_source import BatchRunner

        BatchRunner(spec).run()
    else:
        from penstock.connect.runtime.source import SourceRunner

        SourceRunner(spec).run()
    channel.send("stopped")
    return 0


if __name__ == "__main__":
    main()
