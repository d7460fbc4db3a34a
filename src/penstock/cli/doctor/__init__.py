"""`penstock doctor`: what is wrong with a cluster, a data directory or a Spark set-up, and what to do."""
