"""What a user of the SQL server may do: the ACLs of the cluster decide."""
