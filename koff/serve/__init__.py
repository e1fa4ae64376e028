"""Serves metrics, events and health over HTTP, from views of a `ViewSource`. Sends no request to Kafka."""
