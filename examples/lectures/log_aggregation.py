"""Log aggregation: the services of many machines write their log lines to one topic.

A handler of Python's logging sends each line, keyed by service. Prints the errors, and how many lines each
service wrote.
"""

import json
import logging
from collections import Counter
from itertools import islice

from classroom import bootstrap, new_topic
from kafka import KafkaConsumer, KafkaProducer


class TopicHandler(logging.Handler):
    def __init__(self, producer: KafkaProducer, topic: str) -> None:
        super().__init__()
        self.producer, self.topic = producer, topic

    def emit(self, record: logging.LogRecord) -> None:
        line = {"service": record.name, "level": record.levelname, "message": record.getMessage()}
        self.producer.send(self.topic, key=record.name.encode(), value=json.dumps(line).encode())


servers = bootstrap(__doc__)
topic = new_topic(servers, "logs", partitions=2)
producer = KafkaProducer(bootstrap_servers=servers)
handler = TopicHandler(producer, topic)
for service in ("shop", "billing"):
    logging.getLogger(service).addHandler(handler)
    logging.getLogger(service).setLevel(logging.INFO)
    logging.getLogger(service).propagate = False

logging.getLogger("shop").info("basket opened")
logging.getLogger("billing").error("card of %s refused", "ann")
logging.getLogger("shop").info("basket closed")
producer.close()  # waits for what is under way

lines: Counter[str] = Counter()
consumer = KafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
for record in islice(consumer, 3):
    line = json.loads(record.value)
    lines[line["service"]] += 1
    if line["level"] == "ERROR":
        print(f"ERROR {line['service']}: {line['message']}")
print(dict(sorted(lines.items())))
consumer.close()
