"""RabbitMQ, and other servers that speak AMQP 0-9-1: queues to topics, records to exchanges."""

from penstock.connect.connectors.amqp.sink import AmqpSink
from penstock.connect.connectors.amqp.source import AmqpSource

__all__ = ["AmqpSink", "AmqpSource"]
