"""Gimpel & Smith (2010): softmax-margin and six other ways of training, table 1."""
