"""Redis: entries of streams and lists to topics, records of topics to keys."""

from penstock.connect.connectors.redis.list_source import RedisListSource
from penstock.connect.connectors.redis.sink import RedisSink
from penstock.connect.connectors.redis.stream_source import RedisStreamSource

__all__ = ["RedisListSource", "RedisSink", "RedisStreamSource"]
