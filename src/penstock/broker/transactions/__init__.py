"""Transactions on this broker: the coordinator's host, its markers, and what a produce in one has to pass.

| module | what lives there |
| --- | --- |
| `host` | the shards of `__transaction_state` that this broker leads, and producer ids at hand |
| `markers` | markers into the partitions of a transaction that ends, here and on other brokers |
| `verification` | whether a partition is in a producer's transaction (KIP-890), asked before an append |
| `append_order` | transactional batches are appended in the order in which they came |
| `peer_batches` | requests to one broker that are made together go together |
"""
