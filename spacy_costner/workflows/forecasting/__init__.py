"""How good a model is by the number of its training docs, and how good more docs would make it."""
