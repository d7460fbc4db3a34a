"""The web console: pages to view and manage a Kafka cluster, its schemas and its connectors.

A Kafka client: it works with Penstock and with any other Kafka cluster. `reads` gets the data of the pages,
as plain functions that return dataclasses; `pages` has one file per page; `parts` has shared components.
"""
