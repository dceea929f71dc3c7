"""Train the linear model, on a corpus, in folds, or in several variants."""
