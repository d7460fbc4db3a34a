"""ZooKeeper servers on this machine: the jars inside the PySpark package, run with the Java that is here."""

from penstock.ensemble.server import Member, ServerSpec, ServerTls, ZooKeeperProcess, command, free_port

__all__ = ["Member", "ServerSpec", "ServerTls", "ZooKeeperProcess", "command", "free_port"]
