"""koff's own connections to brokers: the only place with sockets."""
