"""The print of a flow, with which two of its versions are compared: sources, state, columns, plan.

A plan is given as `PlanNode`s (`resolving` reads them from Spark), so everything here is pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from typing import Any

from penstock.pipelines.plans.dependencies import Kept

_VOLATILE = re.compile(
    r"#\d+L?"  # ids of expressions, new with every analysis
    r"|-T\d+ms"  # the watermark that a column carries
    r"|@[0-9a-f]{4,16}\b"  # Java's default toString
    r"|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
)

# Operators that keep rows between micro-batches if their input is a stream.
_STATEFUL = re.compile(
    r"Aggregate|Distinct|Deduplicate(WithinWatermark)?|FlatMapGroupsWithState|FlatMapGroupsInPandasWithState"
    r"|TransformWithState\w*|GlobalLimit|LocalLimit|Tail"
)
_PYTHON_CODE = re.compile(r"Python|InPandas|InArrow|InPySpark")
_ADDRESS = "kafka.bootstrap.servers"

# Options of a source that say how to read, not what; so do all of `kafka.` but the brokers' address, which
# identifies the cluster where its id is not known.
TUNING = frozenset(
    name.lower()
    for name in (
        "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions",
        "maxRecordsPerPartition", "failOnDataLoss", "startingOffsets", "startingTimestamp",
        "startingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy", "groupIdPrefix", "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs", "maxFilesPerTrigger",
        "maxBytesPerTrigger", "latestFirst", "maxFileAge",
        "maxCachedFiles", "discardCachedInputRatio", "cleanSource", "sourceArchiveDir", "rowsPerSecond",
        "dead.letter.topic", "dead.letter.query",
        "rampUpTime", "numPartitions", "rowsPerBatch", "advanceMillisPerBatch",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlanNode:
    """One operator of a logical plan. `source` is set on streaming leaves: format and options."""

    name: str
    text: str
    streaming: bool = False
    output: tuple[str, ...] = ()
    """`name type` of each column that it gives."""
    children: tuple[PlanNode, ...] = ()
    source: tuple[str, Mapping[str, str]] | None = None
    table: str = ""
    """The table of a leaf that is not a stream."""
    detail: Mapping[str, object] = field(default_factory=dict)
    """Its fields: `Expression`s, tuples of them, and texts for anything else."""
    ids: tuple[tuple[int, str], ...] = ()
    """Id and name of each column that it gives."""
    types: Mapping[int, str] = field(default_factory=dict)
    """Of a leaf's columns, by id."""

    def walk(self) -> Iterator[PlanNode]:
        """The nodes from the leaves up, left to right: the order in which Spark numbers stateful
        operators.
        """
        for child in self.children:
            yield from child.walk()
        yield self


@dataclass(frozen=True, slots=True)
class FlowPrint:
    """Everything that decides whether a flow can continue from the checkpoint of another version of it."""

    target: str
    kind: str
    sources: tuple[str, ...]
    state: tuple[str, ...]
    columns: tuple[str, ...]
    plan: str
    code: str = ""
    """A hash of its Python file, if its plan calls Python functions: their bodies are not in the plan."""
    conf: tuple[tuple[str, str], ...] = ()
    reads: tuple[str, ...] = ()
    """Tables of the pipeline that it reads as streams."""
    looks_up: tuple[str, ...] = ()
    """Tables of the pipeline that it reads without streaming."""
    shared: bool = False
    """Whether other flows go into the same table."""
    query: str = ""
    """A digest of the whole query, with what its Python functions do and the settings that change results."""
    gives: str = ""
    """The same without options of how sources are read: the rows of two queries with the same digest
    are equal.
    """
    lineage: tuple[Kept, ...] | None = None
    """Everything that its state was built from. None in records of older versions of Penstock."""
    by_cluster: tuple[str, ...] = ()
    """`sources` again, by the cluster's id in place of the brokers' address; an empty text where there is no
    cluster, or it could not be asked."""
    groups: tuple[str, ...] = ()
    """The consumer groups that show its progress."""
    functions: tuple[tuple[str, str], ...] = ()
    """Python functions of SQL by name, each with a digest of its code and of the modules that it uses."""

    @classmethod
    def unknown(cls) -> FlowPrint:
        """The print of a flow without a readable record."""
        return cls("", "", (), (), (), "")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FlowPrint:
        pairs = tuple((str(key), str(value)) for key, value in data["conf"])
        lists = {name: tuple(data[name]) for name in ("sources", "state", "columns", "reads", "looks_up")}
        by_cluster = tuple(data.get("by_cluster", ()))  # older versions compared only the address
        lists["groups"] = tuple(data.get("groups", ()))
        lists["functions"] = tuple((str(name), str(each)) for name, each in data.get("functions", ()))
        recorded = data.get("lineage")
        lineage = None if recorded is None else tuple(Kept.from_json(each) for each in recorded)
        return cls(**{**data, **lists, "conf": pairs, "by_cluster": by_cluster, "lineage": lineage})

    def remembering(self, then: FlowPrint | None) -> FlowPrint:
        """Takes the cluster ids of unknown clusters from an earlier print of the same sources."""
        if then is None or then.sources != self.sources:
            return self
        known = zip_longest(self.by_cluster, then.by_cluster, fillvalue="")
        return replace(self, by_cluster=tuple(now or before for now, before in known))


def normal(text: str) -> str:
    """A node's text without parts that differ between two analyses of the same query."""
    return _VOLATILE.sub("", text)


def source_identity(format_: str, options: Mapping[str, str], cluster: str | None = None) -> str:
    """What is read, not how: two sources with the same identity have the same offsets. It contains the id of
    the cluster if that is given, else the address of its brokers.
    """
    kept = {
        key.lower(): value
        for key, value in options.items()
        if key.lower() not in TUNING
        and (not key.lower().startswith("kafka.") or (key.lower() == _ADDRESS and cluster is None))
    }
    if cluster is not None:
        kept["cluster"] = cluster
    said = ", ".join(f"{key}={value}" for key, value in sorted(kept.items()))
    return f"{format_.lower()}({said})"


def sources_of(plan: PlanNode) -> tuple[str, ...]:
    """The streaming sources in the order in which a checkpoint has their offsets."""
    return tuple(source_identity(*node.source) for node in plan.walk() if node.source)


def sources_by_cluster(
    plan: PlanNode, cluster_id: Callable[[Mapping[str, str]], str | None]
) -> tuple[str, ...]:
    """The same with cluster ids, which `cluster_id` determines from a source's options."""
    found = []
    for node in plan.walk():
        if node.source:
            format_, options = node.source
            cluster = cluster_id(options)
            found.append("" if cluster is None else source_identity(format_, options, cluster))
    return tuple(found)


def is_stateful(node: PlanNode) -> bool:
    """Whether an operator keeps rows, or values derived from them, between micro-batches."""
    if node.name == "Join":
        return sum(child.streaming for child in node.children) == 2
    return bool(_STATEFUL.fullmatch(node.name)) and any(child.streaming for child in node.children)


def state_of(optimized: PlanNode) -> tuple[str, ...]:
    """The stateful operators, each with what decides the form of its state."""
    found = []
    for node in optimized.walk():
        if not is_stateful(node):
            continue
        if node.name == "Join":
            sides = " and ".join("(" + ", ".join(child.output) + ")" for child in node.children)
            found.append(f"{normal(node.text)} of {sides}")
        else:
            text = normal(node.text)
            if node.name.startswith("Dedup"):  # whole rows pass through, and their keys are kept
                text += " of (" + ", ".join(node.children[0].output) + ")"
            found.append(text.lstrip("~'! "))
    return tuple(found)


_OF_NO_MATTER = re.compile(
    r"spark\.sql\.(shuffle|adaptive|streaming|execution|warehouse|catalog|catalogImplementation|extensions|hive"
    r"|artifact|ui|codegen|sources|autoBroadcast\w*|broadcast\w*|defaultUrlStreamHandlerFactory|event|files"
    r"|inMemoryColumnarStorage|parquet|orc|queryExecutionListeners|redaction|repl|session|statistics|thriftServer"
    r"|ansi|optimizer|cache|debug|maxPlanStringLength|pyspark|python|cbo|scripts|local\w*|pipelines)\b.*"
)
_OF_MATTER = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.streaming.multipleWatermarkPolicy",
    "spark.sql.files.ignoreCorruptFiles",
    "spark.sql.files.ignoreMissingFiles",
)


def deciding_settings(conf: Mapping[str, str], value: Callable[[str], str]) -> dict[str, str]:
    """The settings that change what a query gives: those that are known to, as they hold (`value`), and of
    those that were set all of which the contrary is not known."""
    chosen = {name: value(name) for name in _OF_MATTER}
    return chosen | {
        name: each
        for name, each in conf.items()
        if name.startswith("spark.sql.") and not _OF_NO_MATTER.fullmatch(name)
    }


def runs_python(plan: PlanNode) -> bool:
    """Whether Python functions are called for rows or groups."""
    return any(
        _PYTHON_CODE.search(node.name) or "PythonUDF" in node.text or re.search(r"\)#\d+", node.text)
        for node in plan.walk()
    )


def plan_hash(plan: PlanNode) -> str:
    lines = []

    def add(node: PlanNode, depth: int) -> None:
        said = source_text(node) if node.source else normal(node.text)
        lines.append(f"{depth} {said}")
        for child in node.children:
            add(child, depth + 1)

    add(plan, 0)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def source_text(node: PlanNode) -> str:
    assert node.source is not None
    format_, options = node.source
    return f"{format_} {sorted((key.lower(), value) for key, value in options.items())} {node.output}"
