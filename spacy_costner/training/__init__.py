"""Training: the targets and objective of every model, and the training of the linear model."""
