"""The log output of every process: standard error, one line per record, as text or JSON.

The format is stored in the environment, so that child processes use the same.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime

VARIABLE = "PENSTOCK_LOG_FORMAT"
FORMS = ("text", "json")
_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_NAMES = {"WARNING": "WARN", "CRITICAL": "FATAL"}


class JsonLines(logging.Formatter):
    """One JSON object on one line, with Kafka's names of levels; `error` has the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": _NAMES.get(record.levelname, record.levelname),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logging(*quiet: str) -> None:
    """Log from INFO on; for the loggers in `quiet`, from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    as_json = os.environ.get(VARIABLE) == "json"
    handler.setFormatter(JsonLines() if as_json else logging.Formatter(_TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for name in quiet:
        logging.getLogger(name).setLevel(logging.WARNING)
