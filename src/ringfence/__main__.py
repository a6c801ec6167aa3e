"""``python -m ringfence`` is the ``ringfence`` program."""

from ringfence.cli import main

if __name__ == "__main__":
    main()
