"""Templates and ``if`` expressions: parsed at load, rendered once, label values are data and never code."""
