"""Higashiyama et al.: the structured perceptron with a cost that knows the tree of categories."""
