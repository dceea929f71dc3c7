"""Repeat the experiments of the papers that introduced the losses: see docs/reproduction.md.

An experiment consists of a spec, a module with its trainings and tables, and a Markdown template
with placeholders for the figures. The other modules are shared: see runner.py for how trainings are
run and cached, and training.py for how a model is trained and scored.
"""

import os

# Trainings run side by side, each on one core. NumPy's BLAS reads this when it is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
