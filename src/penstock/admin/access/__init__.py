"""Who may use the cluster, and how much: SCRAM users, ACLs and client quotas."""
