"""``python -m tests.testing.preloaded.server SOCKET``: imports third-party modules, then forks.

It ends when the folder of the socket is deleted, or when the folder's owner ends.
"""

import gc
import os
import select
import shutil
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from .folder import owner_of
from .modules import import_all
from .program import become
from .wire import Request, receive_request, send_number

_PATIENCE: Final = 0.5


def main() -> None:
    """Serve until there is no client left. In a forked process, become the requested program."""
    address = Path(sys.argv[1])
    gc.disable()  # it would look through all the modules again and again
    import_all()
    if threading.active_count() != 1:
        raise RuntimeError(f"a fork would lose threads: {threading.enumerate()}")
    # The collector would otherwise write to every page that the processes share.
    gc.freeze()
    gc.enable()
    request = _serve(address)
    if request is not None:
        become(request)


def _serve(address: Path) -> Request | None:
    """Serve until the end, and return None. In a forked process, return the request for its
    program."""
    owner = os.pidfd_open(owner_of(address.parent))
    listener = _listen(address)
    while address.exists():
        ready = select.select([owner, listener.fileno()], [], [], _PATIENCE)[0]
        if owner in ready:
            shutil.rmtree(address.parent, ignore_errors=True)
        elif ready:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                os.close(owner)
                return _fork_program(connection)
            connection.close()
        _forget_the_ended()
    return None


def _listen(address: Path) -> socket.socket:
    """Listen at the address. Its name appears when connections are accepted."""
    listener = socket.socket(socket.AF_UNIX)
    new = address.with_suffix(".new")
    listener.bind(str(new))
    listener.listen(64)
    new.rename(address)
    return listener


def _forget_the_ended() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _fork_program(connection: socket.socket) -> Request:
    """Return the request in the new program. Its parent stays, and reports to the client how the
    program ends."""
    request, files = receive_request(connection)
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid:
        for file in (*files, write_end):
            os.close(file)
        os.read(read_end, 1)  # until the program leads a session
        _report_end(connection, pid)
    os.setsid()
    for file in (read_end, write_end):
        os.close(file)
    connection.close()
    for standard, file in enumerate(files):
        os.dup2(file, standard)
        os.close(file)
    return request


def _report_end(connection: socket.socket, pid: int) -> NoReturn:
    """Send the process id, and in the end the status, which is negative if a signal ended the
    process."""
    send_number(connection, pid)
    ended = os.pidfd_open(pid)
    asker = connection.fileno()
    if asker in select.select([ended, asker], [], [])[0]:
        os.killpg(pid, signal.SIGKILL)  # the client no longer waits for it
    _, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):
        send_number(connection, os.waitstatus_to_exitcode(status))
    os._exit(0)


if __name__ == "__main__":
    main()
