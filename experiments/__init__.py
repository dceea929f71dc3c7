"""The experiments of the papers that the losses come from, run again: docs/reproduction.md.

An experiment is a spec, a module that says what is trained and which tables are made of it, and a
page in Markdown beside it with places for the figures. All else is shared: see runner.py for how
trainings are run and kept, training.py for how a model is trained and scored.
"""
