"""Training of the linear model and the targets of every model: arrays, without a component."""
