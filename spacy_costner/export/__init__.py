"""A trained model in a web page: Python writes the model file, JavaScript reads it."""
