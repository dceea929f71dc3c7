"""The costs of mistakes: cost functions, the label tree and cost matrices."""
