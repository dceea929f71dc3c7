"""What holds for all tests."""

from hypothesis import settings

settings.register_profile("chain", max_examples=60, deadline=None)
settings.load_profile("chain")
