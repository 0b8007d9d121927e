"""``python -m fermibose`` is ``fbm``, where the folder of commands is not on the path.

The reproduction of the paper stands beside the library, which does not know it; ``fbm`` is the
command with both.
"""

from importlib import import_module

if __name__ == "__main__":
    import_module("fermibose_paper.cli").main()
