"""Fetches a long history over koff's own connections, as columns, without a message object a record."""
