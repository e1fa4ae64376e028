"""The public client: a broker connection that makes producers, consumers and group offset clients."""
