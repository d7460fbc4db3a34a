"""The audit topic: which requests were denied, which changed the cluster, and which logins failed."""
