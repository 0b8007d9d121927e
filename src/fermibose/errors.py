"""Errors meant for people: each names what is wrong and what to do about it."""


class FermiboseError(Exception):
    """Base of every error this package raises on purpose; the command line prints it plainly."""


class InputError(FermiboseError, ValueError):
    """An argument or an array that cannot be used, with the reason and the remedy."""


class FileFormatError(FermiboseError, ValueError):
    """A file that is missing a part, truncated, corrupt or not of the expected kind."""
