"""What mistakes cost: cost tables, the label tree, the user's cost matrix."""
