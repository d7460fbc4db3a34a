"""Administrative operations on a cluster: topics, settings, offsets, groups, partition placement.

Used by the command line and the console. A Kafka client, for any cluster; an operation that fails raises
`CommandFailed` of `failure.py`: one line that says what to do.
"""
