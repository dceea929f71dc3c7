"""The experiments of the papers that the losses come from, run again: docs/reproduction.md."""
