"""A cluster as administrators see it: topics, settings, offsets, groups, where partitions are.

The command line and the console both stand on it. A Kafka client, for any cluster; what fails is a
`CommandFailed` of `failure.py`: one line that says what to do.
"""
