"""Trained models in web pages: Python writes the model file, and JavaScript reads it."""
