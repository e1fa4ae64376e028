"""The streaming job: one Spark query for each cluster writes batches, end-offset samples and rows of lag."""
