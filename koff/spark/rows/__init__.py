"""Records and commits as Arrow batches and numpy arrays. Nothing here imports Spark."""
