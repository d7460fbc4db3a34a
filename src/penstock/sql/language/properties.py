"""What SET can set: how statements that follow are carried out."""

from __future__ import annotations

from penstock.sql.errors import Clash, Place, Unknown, did_you_mean

RESET = "auto.offset.reset"
INTERVAL = "trigger.interval"
OF_THE_SOURCE = {
    "maxOffsetsPerTrigger": "records that a batch reads at most",
    "minOffsetsPerTrigger": "records that a batch waits for, `maxTriggerDelay` at most",
    "maxTriggerDelay": "how long a batch waits for `minOffsetsPerTrigger`",
    "minPartitions": "parts into which a batch is cut at least",
    "maxRecordsPerPartition": "records that such a part has at most",
    "targetBatchDuration": "how long a batch should take: the records that it reads follow from that",
    "failOnDataLoss": "`false`: go on when records were deleted before they were read",
}
"""Options of Spark's source, which docs/spark.md explains."""
PROPERTIES = {
    RESET: "`earliest` or `latest`: where a query begins that is new; push queries at the latest, others at"
    " the earliest",
    INTERVAL: "how often a batch is begun, as `10 seconds`; as soon as the last is done if it is not set",
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
