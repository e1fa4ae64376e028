"""The core of the monitor against a model of a Kafka cluster, in virtual time, with seeded faults.

The model (`cluster` and the modules that it imports) imports nothing of koff but `koff.records`. It would
otherwise agree with the mistakes of the core.
"""
