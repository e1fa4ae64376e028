"""The Spark pipeline: the path from bytes to lag, on Spark. The only package that imports pyspark."""

from koff.java import MissingJava
from koff.spark.spark_session import MissingSpark, session

# Imported before the rest, so that the error about a missing package says how to install it.
try:
    import pyarrow  # noqa: F401  # imported only to see whether it is installed
    import pyspark  # noqa: F401  # likewise
except ImportError as error:
    raise MissingSpark(f"the package {error.name} is missing: pip install 'koff[spark]'") from error

from koff.spark.rows.decoding import COMMITS, SCHEMA, DataLost, Decoder, decode_batch
from koff.spark.source.kafka import decode, register
from koff.spark.worker_errors import find_koff_error

__all__ = [
    "COMMITS",
    "SCHEMA",
    "DataLost",
    "Decoder",
    "MissingJava",
    "MissingSpark",
    "decode",
    "decode_batch",
    "find_koff_error",
    "register",
    "session",
]
