"""The properties of SET: how later statements are executed."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.sql.errors import Clash, NotAllowed, Place, Unknown, did_you_mean

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
OF_SPARK = "spark."
SPARK_SETTINGS = frozenset(
    f"spark.sql.{name}"
    for name in (
        "adaptive.advisoryPartitionSizeInBytes",
        "adaptive.autoBroadcastJoinThreshold",
        "adaptive.coalescePartitions.enabled",
        "adaptive.coalescePartitions.initialPartitionNum",
        "adaptive.coalescePartitions.minPartitionSize",
        "adaptive.coalescePartitions.parallelismFirst",
        "adaptive.enabled",
        "adaptive.localShuffleReader.enabled",
        "adaptive.skewJoin.enabled",
        "adaptive.skewJoin.skewedPartitionFactor",
        "adaptive.skewJoin.skewedPartitionThresholdInBytes",
        "ansi.enabled",
        "autoBroadcastJoinThreshold",
        "broadcastTimeout",
        "caseSensitive",
        "cbo.enabled",
        "cbo.joinReorder.enabled",
        "codegen.wholeStage",
        "crossJoin.enabled",
        "cteRecursionLevelLimit",
        "cteRecursionRowLimit",
        "execution.arrow.maxRecordsPerBatch",
        "files.maxPartitionBytes",
        "groupByAliases",
        "groupByOrdinal",
        "join.preferSortMergeJoin",
        "legacy.timeParserPolicy",
        "mapKeyDedupPolicy",
        "orderByOrdinal",
        "session.timeZone",
        "shuffle.partitions",
        "storeAssignmentPolicy",
        "streaming.minBatchesToRetain",
        "streaming.multipleWatermarkPolicy",
        "streaming.noDataMicroBatches.enabled",
        "streaming.pollingDelay",
        "streaming.stateStore.maintenanceInterval",
        "streaming.stateStore.minDeltasForSnapshot",
        "streaming.stopTimeout",
        "timestampType",
    )
)
"""Settings of Spark that change how a query is computed, or what its expressions mean, and nothing else."""


def check_property(name: str, value: str | None, place: Place | None = None) -> None:
    """Checks that the property exists. Spark validates the values of its settings when a statement uses
    them.
    """
    if name.startswith(OF_SPARK) or value is None:
        return
    if name not in PROPERTIES:
        near = did_you_mean(name, tuple(PROPERTIES))
        raise Unknown(f"no property `{name}`{near} ({', '.join(PROPERTIES)}, and Spark's: spark.…)", place)
    if name == RESET and value not in ("earliest", "latest"):
        near = did_you_mean(value, ("earliest", "latest"))
        raise Clash(f"{RESET} must be earliest or latest, not '{value}'{near}", place)


def restricted(names: Iterable[str]) -> list[str]:
    """The names that are restricted settings of Spark: some of those name classes, files or hosts."""
    return sorted(each for each in names if each.startswith(OF_SPARK) and each not in SPARK_SETTINGS)


def check_settings(names: Iterable[str], reason: str, place: Place | None = None) -> None:
    """Raises NotAllowed, with this reason, if one of the names is such a setting."""
    for name in restricted(names):
        raise NotAllowed(f"SET '{name}': {reason}", place)
