"""`penstock pipeline`: projects of Spark pipelines."""
