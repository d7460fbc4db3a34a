"""`python -m penstock.broker`."""

import sys

from penstock.broker.main import main

if __name__ == "__main__":
    sys.exit(main())
