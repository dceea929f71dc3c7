"""`python -m experiments.mce_f [--quick] [--jobs 2]`."""

from .page import main

if __name__ == "__main__":
    main()
