"""Protobuf bytes as values, without a schema registry: both sides have the same .proto file.

`grpc.protos` compiles reading.proto here (it needs grpcio-tools); a project would run protoc once. Prints
each message, and how many bytes it takes beside JSON.
"""

import json
import sys
from itertools import islice
from pathlib import Path

import grpc
from classroom import bootstrap, new_topic
from kafka import KafkaConsumer, KafkaProducer

sys.path.append(str(Path(__file__).parent))  # where grpc.protos looks for the file
Reading = grpc.protos("reading.proto").Reading

servers = bootstrap(__doc__)
topic = new_topic(servers, "protobuf-readings")

producer = KafkaProducer(bootstrap_servers=servers, value_serializer=Reading.SerializeToString)
producer.send(topic, Reading(sensor="roof", celsius=21.5, at=1735689600000))
producer.send(topic, Reading(sensor="cellar", celsius=12, at=1735689601000))
producer.close()  # waits for what is under way

consumer = KafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
for record in islice(consumer, 2):
    reading = Reading.FromString(record.value)
    as_json = json.dumps({"sensor": reading.sensor, "celsius": reading.celsius, "at": reading.at})
    print(f"{reading.sensor}: {reading.celsius}° in {len(record.value)} bytes, as JSON {len(as_json)}")
consumer.close()
