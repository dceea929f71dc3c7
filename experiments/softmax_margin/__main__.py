"""`python -m experiments.softmax_margin [--quick] [--jobs 2]`."""

from .page import main

if __name__ == "__main__":
    main()
