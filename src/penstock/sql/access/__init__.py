"""Permissions of the users of the SQL server, from the ACLs of the cluster."""
