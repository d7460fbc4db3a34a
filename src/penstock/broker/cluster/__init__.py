"""This broker as one of several: registration, connections to the others, changes of the in-sync replicas."""
