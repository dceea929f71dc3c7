"""Ricci, De Bie & Cristianini: the best Z-score by linear equations, on sequences of hidden Markov
models and on CoNLL-2002 Spanish."""
