"""Loads a project's files into a Graph: Python files with Spark's own decorators, SQL files with `sql`.

Decorated functions are stored, not called: `resolving` calls them when their inputs are available.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.pipelines.errors import BadDefinition, Where
from penstock.pipelines.failures import cause
from penstock.pipelines.project.graph import Dataset, FlowDefinition, Graph, Kind, split_name
from penstock.pipelines.project.project import Project
from penstock.pipelines.project.sql import read_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def load_graph(project: Project, spark: SparkSession) -> Graph:
    """All definitions of the project; BadDefinition has the file and line of the first error."""
    from pyspark.pipelines.graph_element_registry import graph_element_registration_context

    graph = Graph(project.catalog.lower(), project.database.lower())
    with (
        _as_spark_pipelines_does(project.root),
        graph_element_registration_context(_registry(project, graph)),
    ):
        for path in project.files():
            file = project.relative(path)
            if path.suffix == ".py":
                _run(path, file, project, spark)
            elif path.suffix == ".sql":
                try:
                    text = path.read_text(encoding="utf-8")
                except UnicodeDecodeError as error:
                    raise BadDefinition("not text in UTF-8", Where(file)) from error
                read_sql(text, file, graph)
            else:
                raise BadDefinition(
                    "only .py and .sql files can define a pipeline; move it elsewhere", Where(file)
                )
    graph.resolve_targets()
    graph.check()
    return graph


def _run(path: Path, file: str, project: Project, spark: SparkSession) -> None:
    spec = importlib.util.spec_from_file_location(path.stem, str(path))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    module.__dict__["spark"] = spark
    try:
        # Compiled here and not by the loader, whose cache would miss a change within one second.
        exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    except SyntaxError as error:
        raise BadDefinition(f"{error.msg}", Where(file, error.lineno)) from error
    except BadDefinition:
        raise
    except Exception as error:
        raise BadDefinition(cause(error), place_of(error, project) or Where(file)) from error


def place_of(error: BaseException, project: Project) -> Where | None:
    """The innermost line of the project's own files in an exception's traceback."""
    root = str(project.root.resolve()) + os.sep
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if os.path.realpath(frame.filename).startswith(root):
            return Where(project.relative(frame.filename), frame.lineno)
    return None


@contextmanager
def _as_spark_pipelines_does(root: Path) -> Iterator[None]:
    """In the project's directory, as `spark-pipelines` imports the files; no .pyc files are left there."""
    before, no_bytecode = os.getcwd(), sys.dont_write_bytecode
    os.chdir(root)
    sys.dont_write_bytecode = True
    try:
        yield
    finally:
        sys.dont_write_bytecode = no_bytecode
        os.chdir(before)


def _registry(project: Project, graph: Graph) -> Any:
    from pyspark.pipelines.flow import AutoCdcFlow, Flow
    from pyspark.pipelines.graph_element_registry import GraphElementRegistry
    from pyspark.pipelines.output import MaterializedView, Output, Sink, StreamingTable, Table, TemporaryView

    def place(location: Any) -> Where:
        return Where(project.relative(location.filename), location.line_number)

    class Collecting(GraphElementRegistry):
        """Adds what the decorators register to the graph."""

        def register_output(self, output: Output) -> None:
            where = place(output.source_code_location)
            if isinstance(output, Table):
                kinds = {MaterializedView: Kind.MATERIALIZED_VIEW, StreamingTable: Kind.STREAMING_TABLE}
                graph.add_dataset(
                    Dataset(
                        name=graph.qualify(output.name),
                        kind=kinds[type(output)],
                        where=where,
                        comment=output.comment,
                        schema=output.schema,
                        format=output.format,
                        partition_by=tuple(output.partition_cols or ()),
                        cluster_by=tuple(output.cluster_by or ()),
                        properties=dict(output.table_properties),
                    )
                )
                return
            name = split_name(output.name)
            if len(name) != 1:
                raise BadDefinition(f"the name '{output.name}' of a view or sink has one part", where)
            if isinstance(output, TemporaryView):
                graph.add_dataset(Dataset(name, Kind.TEMPORARY_VIEW, where, output.comment))
            elif isinstance(output, Sink):
                options = {key: str(value) for key, value in output.options.items()}
                graph.add_dataset(Dataset(name, Kind.SINK, where, format=output.format, options=options))
            else:
                raise BadDefinition(f"a {type(output).__name__} is not supported", where)

        def register_flow(self, flow: Flow) -> None:
            target = graph.qualify(flow.target)
            by_default = flow.name == flow.target
            graph.add_flow(
                FlowDefinition(
                    name=graph.short(graph.qualify(flow.name)) if by_default else flow.name,
                    target=target,
                    where=place(flow.source_code_location),
                    function=flow.func,
                    conf={key: str(value) for key, value in flow.spark_conf.items()},
                    by_default=by_default,
                )
            )

        def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
            raise BadDefinition(
                "AUTO CDC runs with `penstock pipeline run --once` only", place(flow.source_code_location)
            )

        def register_sql(self, sql_text: str, file_path: Path) -> None:
            read_sql(sql_text, str(file_path), graph)

    return Collecting()
