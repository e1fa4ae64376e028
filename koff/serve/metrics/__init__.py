"""/metrics. Each family is one function: its name, its text and its numbers. `families` lists them all."""
