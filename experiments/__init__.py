"""The experiments of the papers that the losses come from, run again: docs/reproduction.md.

An experiment is a spec, a module with its trainings and tables, and a page in Markdown next to it
with places for the figures. The other modules are shared: see runner.py for how trainings are run
and kept, training.py for how a model is trained and scored.
"""
