"""From a partition to the application: one reader, the queue of what it has read, and acknowledgements."""
