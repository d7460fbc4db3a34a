"""A sensor that reaches 30°: read a stream of readings, and send an alert when the limit is crossed.

One alert for each time the temperature rises to 30°, not one for each hot reading. Prints the alerts.
"""

import json
from itertools import islice

from classroom import bootstrap, new_topic
from kafka import KafkaConsumer, KafkaProducer

servers = bootstrap(__doc__)
readings = new_topic(servers, "temperatures")
alerts = new_topic(servers, "temperature-alerts")

producer = KafkaProducer(bootstrap_servers=servers, value_serializer=lambda value: json.dumps(value).encode())
for sensor, celsius in [("roof", 28), ("roof", 30), ("hall", 21), ("roof", 31), ("roof", 29), ("roof", 30.5)]:
    producer.send(readings, key=sensor.encode(), value=celsius)
producer.flush()

last: dict[bytes, float] = {}
consumer = KafkaConsumer(readings, bootstrap_servers=servers, auto_offset_reset="earliest")
for record in islice(consumer, 6):
    celsius = json.loads(record.value)
    if celsius >= 30 > last.get(record.key, 0):
        producer.send(alerts, key=record.key, value={"celsius": celsius, "offset": record.offset})
    last[record.key] = celsius
producer.close()
consumer.close()

consumer = KafkaConsumer(alerts, bootstrap_servers=servers, auto_offset_reset="earliest")
for alert in islice(consumer, 2):
    print(alert.key.decode(), json.loads(alert.value))
consumer.close()
