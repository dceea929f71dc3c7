"""The spaCy pipeline component: training on examples, and writing predictions to docs."""
