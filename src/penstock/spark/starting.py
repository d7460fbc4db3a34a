"""Whether a streaming query has begun to read.

Each query starts a Python process, which Spark gives 10 s to connect: started all at once, on a busy machine
none of them makes it. So supervisors start the next ones when those before have begun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_NOT_BEGUN = ("Initializing", "Getting offsets")
"""How Spark begins what it says of a query whose sources have not answered yet."""


def begun(query: StreamingQuery) -> bool:
    """Whether its sources have answered, or it has ended."""
    if not query.isActive or query.lastProgress is not None:
        return True
    return not str(query.status["message"]).startswith(_NOT_BEGUN)
