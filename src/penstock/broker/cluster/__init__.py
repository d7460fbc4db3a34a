"""This broker in a cluster: registration, connections to other brokers, changes of the in-sync replicas."""
