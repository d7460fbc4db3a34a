"""Transactions on this broker: the coordinator's host, its markers, and the verification of produces.

| module | what lives there |
| --- | --- |
| `host` | the shards of `__transaction_state` that this broker leads, and producer ids at hand |
| `markers` | writes markers to the partitions of an ending transaction, here and on other brokers |
| `verification` | whether a partition is in a producer's transaction (KIP-890), asked before an append |
| `append_order` | transactional batches are appended in the order in which they came |
| `peer_batches` | combines requests to the same broker |
"""
