"""Training: the targets and objective of all models, and the training of the linear model."""
