"""Deletes marks of queries that will not run again: each task reads all marks of its partition, and nothing
else removes them from the compacted topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.client import ClientError
from penstock.errors import ApiError
from penstock.spark.errors import NotDelivered
from penstock.spark.sink.producer import ProducerSettings, TaskProducer
from penstock.spark.sink.written_tasks import DEFAULT_TOPIC, MarksReader, mark_key, partition_of


def forget_marks(kafka: Mapping[str, str], queries: Iterable[str], topic: str = DEFAULT_TOPIC) -> int:
    """Deletes the marks of queries whose tasks have all ended. Returns their number.

    A task that still runs would write its batch again: end its transaction first.
    """
    reader, producer, count = MarksReader(kafka, topic), None, 0
    try:
        for query in queries:
            found = reader.read(query)
            for task in sorted({*found.settled, *found.open}):
                if producer is None:
                    producer = TaskProducer(ProducerSettings.from_kafka(kafka, transactional=False))
                producer.send_mark(topic, partition_of(query), mark_key(query, task), None)
                count += 1
        if producer is not None:
            producer.flush()
    except (ApiError, ClientError) as error:
        raise NotDelivered(f"the marks of ended queries cannot be read: {error}") from error
    finally:
        reader.close()
    return count
