"""The messages between client and server."""

import json
import socket
import struct
from dataclasses import asdict, dataclass
from typing import Final

_LENGTH: Final = struct.Struct("!I")
_NUM_FILES: Final = 3


@dataclass(frozen=True)
class Request:
    """The arguments after ``python`` on a command line, with the environment and the folder."""

    arguments: list[str]
    environment: dict[str, str]
    directory: str


def send_request(connection: socket.socket, request: Request, files: list[int]) -> None:
    """Send a request. ``files`` become the standard input, output and error of the program."""
    text = json.dumps(asdict(request)).encode()
    socket.send_fds(connection, [_LENGTH.pack(len(text))], files)
    connection.sendall(text)


def receive_request(connection: socket.socket) -> tuple[Request, list[int]]:
    packed, files, _, _ = socket.recv_fds(connection, _LENGTH.size, _NUM_FILES)
    (length,) = _LENGTH.unpack(packed)
    return Request(**json.loads(_receive(connection, length))), files


def send_number(connection: socket.socket, number: int) -> None:
    connection.sendall(b"%11d\n" % number)


def receive_number(connection: socket.socket) -> int:
    return int(_receive(connection, 12))


def _receive(connection: socket.socket, length: int) -> bytes:
    received = b""
    while len(received) < length:
        part = connection.recv(length - len(received))
        if not part:
            raise ConnectionError("the server of preloaded processes has gone")
        received += part
    return received
