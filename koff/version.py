"""The version of koff. The build reads it from here."""

VERSION = "0.1.0"
