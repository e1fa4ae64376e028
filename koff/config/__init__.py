"""What users configure in files and in the environment: `koff.yaml` and librdkafka properties."""
