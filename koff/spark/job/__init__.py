"""The job: each cluster has a thread that plans batches, writes them, and derives groups and lags."""
