"""The web console: pages to see and steer a Kafka cluster, its schemas and its connectors.

A Kafka client: it works with Penstock and with any other Kafka cluster. `reads` has what pages show, as plain
functions that return dataclasses; `pages` has one file a page; `parts` what pages are made of.
"""
