"""The costs of mistakes: tables, the label tree, and cost matrices."""
