"""``python -m fermibose`` is ``fbm``, where the folder of commands is not on the path."""

from fermibose.cli import main

if __name__ == "__main__":
    main()
