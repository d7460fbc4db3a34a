"""What SET can set: how statements that follow are carried out."""

from __future__ import annotations

from penstock.sql.errors import Clash, Place, Unknown, did_you_mean

RESET = "auto.offset.reset"
INTERVAL = "trigger.interval"
OF_THE_SOURCE = {
    "maxOffsetsPerTrigger": "the most records that a batch reads",
    "minOffsetsPerTrigger": "the records that a batch waits for, at most for `maxTriggerDelay`",
    "maxTriggerDelay": "how long a batch waits for `minOffsetsPerTrigger`",
    "minPartitions": "the least number of tasks of a batch",
    "maxRecordsPerPartition": "the most records of a task",
    "targetBatchDuration": "how long a batch should take; its size is chosen accordingly",
    "failOnDataLoss": "`false`: continue when records were deleted before they were read",
}
"""Options of Spark's source, which docs/spark.md explains."""
PROPERTIES = {
    RESET: "`earliest` or `latest`: where a new query starts. Default: latest for push queries, earliest for"
    " others",
    INTERVAL: "how often a batch starts, such as `10 seconds`. Default: as soon as the last one is done",
    **OF_THE_SOURCE,
}
_OF_SPARK = "spark."


def check_property(name: str, value: str | None, place: Place | None = None) -> None:
    """Settings of Spark's are Spark's to judge, when a statement uses them."""
    if name.startswith(_OF_SPARK) or value is None:
        return
    if name not in PROPERTIES:
        near = did_you_mean(name, tuple(PROPERTIES))
        raise Unknown(f"no property `{name}`{near} ({', '.join(PROPERTIES)}, and Spark's: spark.…)", place)
    if name == RESET and value not in ("earliest", "latest"):
        near = did_you_mean(value, ("earliest", "latest"))
        raise Clash(f"{RESET} must be earliest or latest, not '{value}'{near}", place)
