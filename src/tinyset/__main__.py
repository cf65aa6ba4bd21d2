import sys

from tinyset.cli import main

if __name__ == "__main__":
    sys.exit(main())
