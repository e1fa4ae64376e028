"""Watches one cluster: reads its internal topics into a tracker, samples end offsets, keeps lag current."""
