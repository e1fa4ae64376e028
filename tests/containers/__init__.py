"""koff's own image, run by a real container engine."""
