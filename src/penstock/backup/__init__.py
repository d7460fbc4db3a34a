"""Backups of a broker's data directories, and of the metadata of a broker or a cluster.

A backup is a separate, versioned file or directory. A restore needs an empty target, or the option to
overwrite it.
"""
