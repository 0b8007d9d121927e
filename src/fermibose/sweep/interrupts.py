"""Ctrl-C during a sweep: at once while waiting or computing, never in the middle of a row."""

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """Knows whether Ctrl-C was pressed, even if the function of a job handled it by itself.

    Such a function may return what it had so far, which must not pass for its result. It may even
    install a handler of its own, so the presses are counted where Python notes them: on the
    descriptor of ``signal.set_wakeup_fd``.
    """

    def __init__(self, wakeups: socket.socket | None) -> None:
        self._wakeups = wakeups
        self._held = False
        self._pressed = False

    def requested(self) -> bool:
        """Whether Ctrl-C was pressed since the beginning."""
        while self._wakeups is not None and not self._pressed:
            try:
                self._pressed = signal.SIGINT in self._wakeups.recv(4096)
            except BlockingIOError:
                break
        return self._pressed

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside, Ctrl-C waits; it takes effect on leaving."""
        self._held = True
        yield
        if self.requested():
            raise KeyboardInterrupt
        self._held = False

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """The signal handler: only the first press raises, what follows is left in peace."""
        self._pressed = True
        if not self._held:
            self._held = True
            raise KeyboardInterrupt


@contextmanager
def watch_interrupts() -> Iterator[Interrupts]:
    """Watch for Ctrl-C inside. Only the main thread hears signals: in another, nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield Interrupts(None)
        return
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)
        writer.setblocking(False)
        interrupts = Interrupts(reader)
        descriptor = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        handler = signal.signal(signal.SIGINT, interrupts.handle)
        try:
            yield interrupts
        finally:
            signal.signal(signal.SIGINT, handler)
            signal.set_wakeup_fd(descriptor)
