"""Backups: a broker's data directories, and the metadata of a broker or a cluster.

They are files and directories of their own, with a version. Who restores one names an empty target, or
says that what is there may go.
"""
