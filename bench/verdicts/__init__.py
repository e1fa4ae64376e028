"""How well verdicts fit the lives of groups whose truth is known."""
