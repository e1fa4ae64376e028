"""Events of groups and clusters: found by comparing views, and sent to streams, webhooks and the log."""
