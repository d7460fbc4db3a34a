"""MQTT: messages of topics to Kafka, records to messages. Any MQTT 3.1.1 or 5 server."""

from penstock.connect.connectors.mqtt.sink import MqttSink
from penstock.connect.connectors.mqtt.source import MqttSource

__all__ = ["MqttSink", "MqttSource"]
