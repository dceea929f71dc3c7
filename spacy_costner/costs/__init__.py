"""What mistakes cost: tables, the label tree, the matrix of the user."""
