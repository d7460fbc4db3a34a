"""Partitions as replicas: leader checks, the high watermark, and the operations that wait for them."""
