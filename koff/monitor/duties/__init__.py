"""The duties of a monitor. A module has one request, its I/O, its result, and the rule when it is due."""
