"""Holds what is known of a cluster at a moment, ready to be shown. Pure: no I/O, no clock, no threads."""
