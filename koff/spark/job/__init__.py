"""The streaming job: a query for each cluster, end offsets sampled beside it, rows of lag."""
