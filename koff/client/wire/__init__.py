"""koff's own connections to brokers, for the requests that confluent-kafka has no call for."""
