# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Flows to and from a bridge of Open vSwitch, over the socket that each bridge listens on.

Changes are one bundle (OpenFlow 1.4, section 6.9): packets meet either all of them or none.
"""

import itertools
import json
import logging
import os
import socket
import struct
import time
import types

from os_ken.ofproto import nicira_ext, ofproto_parser, ofproto_v1_4, ofproto_v1_4_parser

from nfluid_firewall.flows import DROPPED, NET

LOG = logging.getLogger(__name__)

OF, PARSER = ofproto_v1_4, ofproto_v1_4_parser
# os-ken's own class for this takes only the versions that the process's controller speaks, and Neutron's speaks 1.3.
DATAPATH = types.SimpleNamespace(ofproto=OF, ofproto_parser=PARSER)
# The input port of a packet, for a table looked up again.
IN_PORT = 0xFFF8
# Seconds that a bridge may take for an answer.
TIMEOUT = 60
# Seconds after which the switch has looked through the flows that it remembers in any case: it does so every 0.5 s.
PATIENCE = 1
ZONE = (NET, nicira_ext.ofs_nbits(0, 15))


class SwitchError(Exception):
    """The bridge cannot be reached, or refuses."""


def encode_match(match):
    fields = dict(match)
    if "vlan_vid" in fields:
        fields["vlan_vid"] |= OF.OFPVID_PRESENT
    return PARSER.OFPMatch(**fields)


def encode_action(action):
    kind, *rest = action
    if kind == "set":
        return PARSER.OFPActionSetField(**{rest[0]: rest[1]})
    if kind == "goto":
        return PARSER.NXActionResubmitTable(in_port=IN_PORT, table_id=rest[0])
    if kind == "conjunction":
        number, clause = rest
        # Clauses are counted from 0.
        return PARSER.NXActionConjunction(clause=clause - 1, n_clauses=2, id_=number)
    if kind == "track":
        return conntrack(0, rest[0], [])
    if kind == "commit":
        mark = rest[0]
        return conntrack(1, 0xFF, [] if mark is None else [PARSER.OFPActionSetField(ct_mark=mark)])
    if kind == "output_reg":
        return PARSER.NXActionOutputReg(ofs_nbits=nicira_ext.ofs_nbits(0, 31), src=rest[0], max_len=0)
    return {
        "ct_clear": PARSER.NXActionCTClear,
        "strip_vlan": PARSER.OFPActionPopVlan,
        "normal": lambda: PARSER.OFPActionOutput(OF.OFPP_NORMAL),
    }[kind]()


def conntrack(flags, table, actions):
    return PARSER.NXActionCT(flags=flags, zone_src=ZONE[0], zone_ofs_nbits=ZONE[1], recirc_table=table, alg=0, actions=actions)


def encode_flow(key, actions, cookie):
    """Returns the message that makes a flow, or with no actions at all (None) takes it away."""
    table, priority, match = key
    if actions is None:
        return PARSER.OFPFlowMod(
            DATAPATH, command=OF.OFPFC_DELETE_STRICT, table_id=table, priority=priority, match=encode_match(match), out_port=OF.OFPP_ANY, out_group=OF.OFPG_ANY
        )
    applied = [PARSER.OFPInstructionActions(OF.OFPIT_APPLY_ACTIONS, [encode_action(action) for action in actions])] if actions else []
    return PARSER.OFPFlowMod(DATAPATH, cookie=cookie, table_id=table, priority=priority, match=encode_match(match), instructions=applied)


def single(message, number):
    """Returns the bytes of a message with this number."""
    message.set_xid(number)
    message.serialize()
    return bytes(message.buf)


def bundle(changes, cookie):
    """Returns the bytes of a bundle up to its end, which is the last message, and that one's number.

    changes: pairs of a flow's key and its actions, None for a flow that goes.
    """
    number = itertools.count(1)
    flags = OF.OFPBF_ATOMIC | OF.OFPBF_ORDERED
    parts = [single(PARSER.OFPBundleCtrlMsg(DATAPATH, 1, OF.OFPBCT_OPEN_REQUEST, flags, []), next(number))]
    for key, actions in changes:
        xid = next(number)
        inner = encode_flow(key, actions, cookie)
        inner.set_xid(xid)
        parts.append(single(PARSER.OFPBundleAddMsg(DATAPATH, 1, flags, inner, []), xid))
    last = next(number)
    parts.append(single(PARSER.OFPBundleCtrlMsg(DATAPATH, 1, OF.OFPBCT_COMMIT_REQUEST, flags, []), last))
    return b"".join(parts), last


def connect(path):
    """Returns a socket that is connected with a socket of the switch."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    found.settimeout(TIMEOUT)
    try:
        found.connect(path)
    except OSError:
        found.close()
        raise
    return found


class Connection:
    """A conversation with a bridge."""

    def __init__(self, path):
        self._path = path
        try:
            self._socket = connect(path)
        except OSError as error:
            raise SwitchError(f"bridge {path}: {error.strerror}; does it exist, and is Open vSwitch running?") from error

    def __enter__(self):
        self.send(single(PARSER.OFPHello(DATAPATH), 0))
        return self

    def __exit__(self, *_):
        self._socket.close()

    def send(self, data):
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise SwitchError(f"bridge {self._path}: {error}") from error

    def messages(self):
        """Yields messages: their kind, number and bytes."""
        while True:
            version, kind, length, xid = struct.unpack("!BBHI", self._read(8))
            data = struct.pack("!BBHI", version, kind, length, xid) + self._read(length - 8)
            if kind == OF.OFPT_ECHO_REQUEST:
                self.send(struct.pack("!BBHI", version, OF.OFPT_ECHO_REPLY, length, xid) + data[8:])
                continue
            if kind == OF.OFPT_ERROR:
                message = parse(kind, xid, data)
                raise SwitchError(f"bridge {self._path} refuses message {xid}: error {message.type}/{message.code} ({bytes(message.data[:64]).hex()})")
            yield kind, xid, data

    def _read(self, count):
        data = b""
        while len(data) < count:
            try:
                part = self._socket.recv(count - len(data))
            except OSError as error:
                raise SwitchError(f"bridge {self._path}: {error}") from error
            if not part:
                raise SwitchError(f"bridge {self._path} ended the conversation")
            data += part
        return data


def parse(kind, xid, data):
    return ofproto_parser.msg(DATAPATH, OF.OFP_VERSION, kind, len(data), xid, data)


def exchange(path, data, last, touch):
    """Sends a bundle, and waits until it holds for every packet. `touch`: a message that changes nothing, but has the switch look through its flows again."""
    with Connection(path) as connection:
        connection.send(data)
        messages = connection.messages()
        await_message(messages, last)
        control = control_socket(path)
        if not control:
            time.sleep(PATIENCE)
            return
        # What the switch remembers of flows, it looks through again after a change, and later by itself. One look may have begun before the change; the next
        # one has not.
        for _ in range(2):
            await_look(path, control, lambda: connection.send(touch))


def await_message(messages, number):
    for _, xid, _ in messages:
        if xid == number:
            return


def control_socket(path):
    """Returns the socket by which ovs-vswitchd is controlled, beside a bridge's; None if it is not there."""
    folder = os.path.dirname(path)
    names = ["ovs-vswitchd.ctl"]
    try:
        with open(os.path.join(folder, "ovs-vswitchd.pid"), encoding="ascii") as file:
            names.insert(0, f"ovs-vswitchd.{int(file.read())}.ctl")
    except (OSError, ValueError):
        pass
    found = (os.path.join(folder, name) for name in names)
    return next((it for it in found if os.path.exists(it)), None)


def await_look(path, control, begin):
    """Waits until the switch has looked once through the flows that it remembers, which `begin` makes it do."""
    try:
        with connect(control) as asked:
            asked.sendall(json.dumps({"id": 0, "method": "revalidator/wait", "params": []}).encode())
            begin()
            answer = b""
            while not is_json(answer):
                part = asked.recv(4096)
                if not part:
                    raise OSError("it ended the conversation")
                answer += part
    except OSError as error:
        LOG.warning("bridge %s: %s: %s; waiting instead", path, control, error)
        time.sleep(PATIENCE)


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def read_flows(path, table):
    """Returns the bytes of the messages that tell a table's flows."""
    with Connection(path) as connection:
        connection.send(single(PARSER.OFPFlowStatsRequest(DATAPATH, table_id=table), 1))
        replies = []
        for kind, xid, data in connection.messages():
            if kind == OF.OFPT_MULTIPART_REPLY and xid == 1:
                replies.append(data)
                if not parse(kind, xid, data).flags & OF.OFPMPF_REPLY_MORE:
                    return replies


# For a process that may open a bridge's socket itself.
ACCESS = (exchange, read_flows)


class Switch:
    """A bridge, as the firewall sees it.

    path: its socket. cookie: what its flows are marked with, a function. access: who opens the socket, a pair of `exchange` and `read_flows`.
    """

    def __init__(self, path, cookie=lambda: 0, access=ACCESS):
        self._path = path
        self._cookie = cookie
        self._exchange, self._read = access

    def apply(self, changes):
        """Changes flows, all at once.

        changes: pairs of a flow's key and its actions, None for a flow that goes. Raises SwitchError.
        """
        cookie = self._cookie()
        data, last = bundle(changes, cookie)
        # The flow of dropped packets is always the same.
        touch = single(encode_flow((DROPPED, 0, ()), (), cookie), last + 1)
        self._exchange(self._path, data, last, touch)

    def flows(self, table):
        """Yields the flows of a table: priority, match as a dict, and the numbers of its conjunctions."""
        for data in self._read(self._path, table):
            for flow in parse(OF.OFPT_MULTIPART_REPLY, 1, data).body:
                actions = [action for part in flow.instructions for action in getattr(part, "actions", [])]
                yield flow.priority, dict(flow.match.items()), {it.id for it in actions if isinstance(it, PARSER.NXActionConjunction)}
