"""`koff monitor`: several monitors, one server, and a configuration that may change meanwhile."""
