"""Prints the demo's summary: throughput, latency, CPU share asked and got, drops by reason."""

import json
import pathlib
import re
import sys


def main() -> None:
    work = pathlib.Path(sys.argv[1])
    stats = json.load(sys.stdin)
    iperf = json.loads((work / "iperf.json").read_text())
    received = iperf["end"]["sum_received"]
    print(f"  TCP throughput     {received['bits_per_second'] / 1e9:.2f} Gbit/s over {received['seconds']:.0f} s")
    for label, name in (("round trip", "ping"), ("while nat died", "ping-kill")):
        text = (work / name).read_text()
        loss = re.search(r"([\d.]+)% packet loss", text)
        rtt = re.search(r"= ([\d.]+)/([\d.]+)/([\d.]+)", text)
        if loss and rtt:
            print(f"  {label:<18} {float(rtt[2]) * 1000:.0f} us mean, {float(rtt[3]) * 1000:.0f} us max, {loss[1]} % lost")
    seconds = stats["time_ns"] / 1e9
    print("  instance           CPU promised   CPU used since start   restarts")
    for instance in stats["instances"]:
        promised = instance.get("share_percent")
        promised = f"{promised:.0f} %" if promised is not None else "-"
        used = instance["cpu_ns"] / 1e9
        print(f"    {instance['name']:<16} {promised:>12}   {used:8.2f} s ({used / seconds * 100:.0f} %)   {instance['restarts']:>12}")
    print("  drops by reason")
    lines = [
        f"    {port['name']:<16} {reason:<12} {count}"
        for port in stats["ports"]
        for reason, count in sorted(port["counters"]["drops"].items())
    ]
    print("\n".join(lines) if lines else "    none")
    print(f"figure demo.iperf3.gbps {received['bits_per_second'] / 1e9:.3f} Gbit/s")


if __name__ == "__main__":
    main()
