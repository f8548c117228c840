"""A DNS server for the demo: answers every question for an A record with 192.0.2.1 (RFC 1035)."""

import socket
import struct
import sys

ANSWER = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + bytes([192, 0, 2, 1])


def question_end(message: bytes) -> int:
    at = 12
    while message[at]:
        at += message[at] + 1
    return at + 5


def main() -> None:
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((sys.argv[1], 53))
    while True:
        message, client = server.recvfrom(512)
        try:
            question = message[12 : question_end(message)]
        except IndexError:
            continue
        header = message[:2] + struct.pack(">HHHHH", 0x8180, 1, 1, 0, 0)
        server.sendto(header + question + ANSWER, client)


if __name__ == "__main__":
    main()
