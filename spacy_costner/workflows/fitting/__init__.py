"""Train linear models on a corpus, in folds, or in several variants."""
