"""The Python data sources: an offsets topic on a cluster, and copied log segments."""
