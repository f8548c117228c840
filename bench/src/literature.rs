//! The experiments of the literature with their results, and our figures that correspond to them.
//!
//! H: HyperNF (SoCC '17; Superfluidity D5.2 section 3). D: massive numbers of tiny NFs on DPDK
//! (UNIFY). R: sharing CPUs by congestion control (KBNets '17; D5.2 section 4). E: network functions
//! with a fast path in XDP. L: instances by the thousand (LightVM, SOSP '17). M: dataflow of baseband (Superfluidity D5.2 section 7).
//! Their absolute figures are from other machines, for context; ratios are comparable.

use nfluid_figures::plot::Series;
use nfluid_figures::record::{Figure, Record};
use nfluid_figures::statistics::Samples;

/// An experiment of the literature.
pub struct Row {
    /// The experiment's id in this project.
    pub id: &'static str,
    /// The quantity that was measured.
    pub what: &'static str,
    /// The result in the literature.
    pub result: &'static str,
    /// Ids of our corresponding figures, without the row's own id (or its experiments' name) and a dot; a `*` stands
    /// for any part between dots.
    pub figures: &'static [&'static str],
}

/// A line of a plot of the literature, beside which ours is drawn.
pub struct Curve {
    /// The experiment's id in this project.
    pub id: &'static str,
    /// The line's name.
    name: &'static str,
    /// The points that the text or the figure names.
    points: &'static [(f64, f64)],
}

/// Lines of plots.
const CURVES: &[Curve] = &[
    Curve {
        id: "L2",
        name: "LightVM, all mechanisms (SOSP '17, fig. 9)",
        points: &[(1.0, 4.0), (1000.0, 4.1)],
    },
    Curve {
        id: "L2",
        name: "Xen's toolstack (SOSP '17, fig. 9)",
        points: &[(1.0, 100.0), (1000.0, 1000.0)],
    },
    Curve {
        id: "L6",
        name: "LightVM's daytime guests (SOSP '17, fig. 14)",
        points: &[(1.0, 3.6), (8000.0, 28_800.0)],
    },
    Curve {
        id: "L7",
        name: "LightVM: save (SOSP '17, fig. 12)",
        points: &[(1.0, 30.0), (1000.0, 30.0)],
    },
    Curve {
        id: "L7",
        name: "LightVM: restore (SOSP '17, fig. 12)",
        points: &[(1.0, 20.0), (1000.0, 25.0)],
    },
    Curve {
        id: "L7",
        name: "LightVM: migrate (SOSP '17, fig. 13)",
        points: &[(1.0, 60.0), (1000.0, 60.0)],
    },
];

/// Returns the lines of an experiment of the literature.
pub fn curves(id: &str) -> Vec<Series> {
    let of_id = CURVES.iter().filter(|curve| curve.id == id);
    of_id
        .map(|curve| {
            let mut series = Series::new(curve.name);
            for (x, y) in curve.points {
                series.push(*x, &Samples::from(*y));
            }
            series
        })
        .collect()
}

/// Figures of D1 to D5: with frames of 700 B, then with other lengths or in another manner.
const MASSIVE: &[&str] = &[
    "*.gbps",
    "*.mpps",
    "*.latency_ms",
    "*.p99_ms",
    "*.cpu_percent",
    "*.idle_cpu_percent",
    "*.mb",
    "*.*.gbps",
    "*.*.latency_ms",
];

/// All rows that this program or `nfluid-sim` repeats.
pub const ROWS: &[Row] = &[
    Row {
        id: "H2",
        what: "static split of 10 to 90 % CPU between NF and I/O thread, firewall of 10 and 50 rules, 64 and 1024 B: throughput per assignment",
        result: "no static assignment is best for all",
        figures: &[
            "*.*.best_nf_percent",
            "*.*.best_mpps",
            "*.*.inline_vs_best",
            "static_loss_percent",
        ],
    },
    Row {
        id: "H3",
        what: "round trip NF, I/O thread, NF against a bare hypercall",
        result: "26.3 us against 0.507 us: 51 times",
        figures: &["*"],
    },
    Row {
        id: "H4",
        what: "batch asked for and batch seen by the switch; cost of synchronisation per packet",
        result: "merge: 25.7 to 165.6 ns, 24 to 62 % of the time per packet; in the caller's context the batch stays as it was asked for",
        figures: &["*.*.seen", "*.*.sync_ns"],
    },
    Row {
        id: "H5",
        what: "no NF, bridge, firewall of 10 rules, router of 10 routes; 64 to 1514 B; every model with one core's worth",
        result: "in-context best everywhere, 10 to 73 % above the others; about 15 Mpps without an NF, router 4.2 Mpps at 64 B",
        figures: &["*.*.inline_vs_best"],
    },
    Row {
        id: "H6",
        what: "transmission on a NIC in the caller's context (HVD) and by a driver domain's thread (DDD)",
        result: "the caller's context best",
        figures: &["*", "*.*", "*.*.mpps_per_cpu"],
    },
    Row {
        id: "H7",
        what: "6 to 36 firewalls of 10 rules, 256 B, on 6 cores: cumulative throughput",
        result: "18 Mpps with 1 NF per core, 13 with 6: 72 % kept; above split, merge and mix",
        figures: &["kept_percent", "kept_per_cpu_percent", "*.inline.mpps"],
    },
    Row {
        id: "H8",
        what: "two NFs on one core, shares 50/50 to 80/20, set-ups A (bridge 64 B, firewall50 1472 B) and B (firewall10 1024 B, firewall50 512 B): error = (goodput - baseline x share) / (baseline x share)",
        result: "merge up to 47 %, split 4 to 175 %, in-context at most 2.9 %",
        figures: &[
            "*.*.error_percent_max",
            "*.*.corrected_percent_max",
            "*.max_error_percent",
            "efficiency_percent",
        ],
    },
    Row {
        id: "H9",
        what: "the same idea in QEMU/KVM: NFs in virtual machines, in every I/O model",
        result: "in-context wins, by 1.1 to 1.5",
        figures: &[
            "exit_ns",
            "*.*.inline_vs_merge",
            "*.*.inline_vs_split",
            "*.*.guest_vs_process",
            "*.*.model_mpps",
        ],
    },
    Row {
        id: "H10",
        what: "30 firewalls, 256 B: rates change with a constant total, the total changes too, NFs come and go; forwarded against offered per second",
        result: "in-context highest, and follows the offered curve",
        figures: &[
            "followed_percent",
            "*.followed_percent",
            "*.*.followed_percent",
            "*.*.above_mpps",
        ],
    },
    Row {
        id: "H11",
        what: "chains of 1 to 50 firewalls of 10 rules, 256 B: throughput, ping-pong",
        result: "best at every length; at most 2 ms for 50 NFs on 10 cores",
        figures: &["*.rtt_us", "*.inline_vs_best"],
    },
    Row {
        id: "D1",
        what: "double buffer, NFs poll; two NFs per packet, consecutive packets to different NFs",
        result: "best with at most one NF per core; 24.4 ms on average with 100 NFs",
        figures: MASSIVE,
    },
    Row {
        id: "D2",
        what: "double buffer and semaphore: an NF blocks until a threshold of packets or an ageing timeout",
        result: "faster than D1 everywhere; above 8 Gbit/s at 700 B with 2000 NFs, their cores 18 % busy; 1.89 ms (40 NFs), 4.83 ms (100), 160 ms (2000)",
        figures: MASSIVE,
    },
    Row {
        id: "D3",
        what: "one ring of all NFs towards the switch, and a semaphore",
        result: "could not be built: DPDK's ring forbids two producers on one core",
        figures: MASSIVE,
    },
    Row {
        id: "D4",
        what: "classification by hardware straight into the first NF's queue; hybrid when queues run out",
        result: "up to 41 % more (6.05 Gbit/s, 64 B, 4 NFs); at most 30 NFs",
        figures: &[
            "*.mpps_vs_switch",
            "*.*.mpps_vs_switch",
            "*.latency_vs_switch",
            "*.gbps",
            "*.mpps",
            "*.latency_ms",
            "*.p99_ms",
            "*.cpu_percent",
            "*.mb",
            "*.*.gbps",
            "*.*.*.mpps_vs_switch",
            "*.*.*.mpps_per_cpu_vs_switch",
            "*.*.*.gbps",
            "rules.*.mpps_per_cpu",
        ],
    },
    Row {
        id: "D5",
        what: "isolated buffers and a semaphore: an NF sees only its own packets, one copy more per hop",
        result: "lower throughput than D2, the same latency",
        figures: &[
            "*.mpps_vs_shared",
            "*.*.mpps_vs_shared",
            "*.latency_vs_shared",
            "*.gbps",
            "*.mpps",
            "*.latency_ms",
            "*.p99_ms",
            "*.cpu_percent",
            "*.mb",
            "*.*.gbps",
            "*.*.shared_vs_isolated",
            "*.rtt_shared_vs_isolated",
            "*.*.mpps_per_cpu",
            "*.*.*.mpps_per_cpu",
        ],
    },
    Row {
        id: "E7",
        what: "wrk, firewall, load balancer, two nginx: XDP fast paths against iptables and HAProxy, 4 to 36 connections",
        result: "1.4 times the requests with 4 connections, 2.5 times with 36, latency 32 to 51 % lower; CPU of firewall and balancer below 2 % instead of above 90 %",
        figures: &[
            "*.requests_ratio",
            "*.latency_ratio",
            "*.cpu_percent",
            "*.vs_nft_ratio",
            "*.of_direct_percent",
            "*.*.cpu_percent",
            "*.*.requests_per_s",
        ],
    },
    Row {
        id: "E8",
        what: "firewall and load balancer in one instance by a tail call, and in two instances",
        result: "1.2 times the requests, latency 12 % lower",
        figures: &["ratio", "latency_ratio"],
    },
    Row {
        id: "R1",
        what: "n forwarders on one core, 128 B, rings of 1024 slots, 0 to 10,000 extra cycles per packet",
        result: "1: 8.2 Mpps; 5: 5.1, with sched_yield 7.5; 30: 3.5 (43 % kept); 1000 cycles: 2.5 to 1.5 Mpps; 10,000 cycles: 288 to 239 Kpps",
        figures: &[
            "kept_percent",
            "*.kept_percent",
            "*.*.kept_percent",
            "*.*.mpps",
        ],
    },
    Row {
        id: "R2",
        what: "rings of 128 and 1024 slots with ten processes",
        result: "3.7 and 5.5 Mpps",
        figures: &["*.mpps", "*.*.mpps"],
    },
    Row {
        id: "R3",
        what: "how two NFs of different cost share a core",
        result: "packet fairness for cheap packets (the dear NF takes 80 % of the CPU), CPU fairness when a batch exceeds the quantum, unfair in between (10 % in place of 50 %)",
        figures: &["cheap_share_percent", "*.cpu_percent", "*.packets_percent"],
    },
    Row {
        id: "R4",
        what: "ping through an idle NF that shares the core with 10 and 25 busy ones",
        result: "median 1.3 and 1.8 ms, tail 2 and 4.5 ms; alone 120 us",
        figures: &["*.median_us", "*.p99_us", "*.*.median_us", "*.*.p99_us"],
    },
    Row {
        id: "R5",
        what: "RED_4 MQ: two TCP flows of different cost on a core; a line of cores, one multipath flow and n short flows (simulated)",
        result: "within 10 % of the fair split, and of drop-tail; fair queueing loses half; no real implementation",
        figures: &[
            "*.two_flows_percent",
            "*.line_percent",
            "*.line_lia_percent",
            "*.batch.cheap_percent",
            "*.unfairness_percent",
        ],
    },
    Row {
        id: "R6",
        what: "one multipath flow over a plain path and one that compresses and decompresses (simulated)",
        result: "it shifts to whichever is less congested",
        figures: &["*.pooling.less_congested_percent"],
    },
    Row {
        id: "E5",
        what: "firewall and DPI in a chain, iperf3: the kernel's firewall, and its simple rules offloaded",
        result: "2.3 -> 3.04 Gbit/s",
        figures: &["*"],
    },
    Row {
        id: "E6",
        what: "DPI on nDPI, four flows of iperf3, 0 to 100 % elephants that go to the fast path",
        result: "3.0 Gbit/s (0 %), 3.6 (50 %, CPU 66 %), 5.0 (100 %, CPU 1 %)",
        figures: &["*", "*.gbps", "*.cpu_percent"],
    },
    Row {
        id: "L1",
        what: "an instance that does nothing, without devices, until it runs",
        result: "2.3 ms; fork and exec of a process 3.5 ms, a container 200 ms",
        figures: &[
            "noop.median_ms",
            "noop.p99_ms",
            "noop.pool_ms",
            "*.median_ms",
        ],
    },
    Row {
        id: "L2",
        what: "creation beside 1 to 1000 instances until it runs",
        result: "4.0 to 4.1 ms with all mechanisms, 100 ms to 1 s with Xen's toolstack",
        figures: &["median_ms", "*.*.median_ms"],
    },
    Row {
        id: "L6",
        what: "instances on one host, memory of each, size of the image",
        result: "8000 on 128 GB, 3.6 MB for a daytime guest of 480 KB",
        figures: &[
            "*.instances",
            "*.instance_mb",
            "*.image_kb",
            "*.daytime_image_kb",
        ],
    },
    Row {
        id: "L7",
        what: "save, restore, and move to another host",
        result: "30, 20 and 60 ms",
        figures: &[
            "save_ms",
            "restore_ms",
            "migrate_blocked_ms",
            "*.save_ms",
            "*.restore_ms",
            "*.migrate_blocked_ms",
        ],
    },
    Row {
        id: "L10",
        what: "a firewall for each subscriber, 10 Mbit/s offered to each active one",
        result: "8000 on one host; 1000 active: 2.5 Gbit/s in all, 60 ms more latency",
        figures: &[
            "*.mbps_each",
            "*.added_latency_ms",
            "*.*.mbps_each",
            "*.*.added_latency_ms",
        ],
    },
    Row {
        id: "L11",
        what: "an instance is made when a client's first packet comes, a client every 10 ms: until the answer",
        result: "13 ms, and the bridge drops packets",
        figures: &["*.10.median_ms", "*.10.lost"],
    },
    Row {
        id: "M5",
        what: "dataflow engine: messages of 64 bits between two cores; the control loop of a chain of tasks; tasks per 1 ms (D5.2, section 7)",
        result: "blocking queue 3 M messages/s, below 400 ns each, lock-free 2 times better; control loop 700 ns; at most 6000 tasks per 1 ms",
        figures: &[
            "queue.stream1_mps",
            "queue.oneway_ns",
            "queue.vs_mutex",
            "control.own.median_ns",
            "control.on_pe.median_ns",
            "tasks_per_ms.*",
            "metg_us",
            "idle.*",
        ],
    },
    Row {
        id: "M6",
        what: "static schedulers on a graph of nine tasks and three processing elements, which the text does not print; here against the optimum of random graphs (D5.2, section 7)",
        result: "lengths HLFET 17, CP 14, MCP 17, ETF 17; schedules unsatisfying, for costs that did not fit",
        figures: &[
            "optimum.*.mcp",
            "optimum.*.*.mcp",
            "optimum.*.etf",
            "optimum.*.*.etf",
            "decisions.*",
            "compose.*",
            "replay.*",
        ],
    },
    Row {
        id: "M7",
        what: "producers and consumers; LTE uplink, 5 MHz, 4 x 4, 64-QAM: 832 tasks per subframe on four processing elements, without a decoder (D5.2, figure 7-17)",
        result: "processing elements above 90 % busy for long tasks; a subframe below 2.5 ms",
        figures: &[
            "lte.*.2_ms",
            "lte.*.2.p99_ms",
            "lte.*.vs_serial",
            "lte.*.vs_rayon",
        ],
    },
    Row {
        id: "V1",
        what: "request until an instance runs: Nomad, OpenVIM, Nova (D5.2, section 5)",
        result: "Nomad, tuned: 280 ms; OpenVIM 1 s, tuned 0.4 s; Nova 2.1 s, tuned 1.15 s",
        figures: &[
            "nomad.running_ms",
            "nomad.started_ms",
            "nomad.nfluid_ms",
            "openvim.ms",
            "openvim.first_frame_ms",
            "openvim.nfluid_ms",
            "nova.active_ms",
            "nova.tuned_ms",
            "nova.fake_ms",
            "nova.active_ms.driver",
        ],
    },
];

impl Row {
    /// Returns our corresponding figures, each once, in the order of [`Row::figures`].
    pub fn answers<'a>(&self, records: &'a [Record]) -> Vec<(&'a Record, &'a Figure)> {
        let begins = self.begins();
        let is_answer = |pattern: &str, figure: &Figure| {
            let mut rests = begins
                .iter()
                .filter_map(|begin| figure.id.strip_prefix(begin));
            rests.any(|rest| matches(pattern, rest))
        };
        let mut answers: Vec<(&Record, &Figure)> = Vec::new();
        for pattern in self.figures {
            let found = records.iter().flat_map(|record| {
                let figures = record.figures.iter();
                figures
                    .filter(|figure| is_answer(pattern, figure))
                    .map(move |figure| (record, figure))
            });
            for (record, figure) in found {
                if !answers.iter().any(|(_, known)| known.id == figure.id) {
                    answers.push((record, figure));
                }
            }
        }
        answers
    }

    /// Returns the prefixes of the ids of figures that may correspond to the row: the row's id, or the names of the
    /// experiments on congestion signals and on dataflow.
    fn begins(&self) -> Vec<String> {
        let names = match self.id {
            "R5" | "R6" => &["sim", "red4"][..],
            "M5" | "M6" | "M7" => &["dataflow"],
            id => &[id],
        };
        let begin = |name: &&str| format!("{}.", name.to_lowercase());
        names.iter().map(begin).collect()
    }
}

/// Returns true if `id` has the parts of `pattern`, in which `*` stands for any part.
fn matches(pattern: &str, id: &str) -> bool {
    let (mut wanted, mut parts) = (pattern.split('.'), id.split('.'));
    loop {
        match (wanted.next(), parts.next()) {
            (None, None) => return true,
            (Some("*"), Some(_)) => {}
            (Some(a), Some(b)) if a == b => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CURVES, ROWS, curves, matches};
    use nfluid_figures::record::sample;

    #[test]
    fn a_star_is_one_part() {
        assert!(matches(
            "h5.*.*.inline_vs_best",
            "h5.router10.64.inline_vs_best"
        ));
        assert!(!matches(
            "h5.*.inline_vs_best",
            "h5.router10.64.inline_vs_best"
        ));
        assert!(matches("h3.*", "h3.roundtrip_ratio"));
        assert!(!matches("h3.*", "h3"));
        assert!(!matches("h1.*", "h11.rtt_us"));
    }

    #[test]
    fn a_row_is_answered_by_its_own_figures_once() {
        let records = [sample("h3"), sample("h2")];
        let row = ROWS.iter().find(|row| row.id == "H3").unwrap();
        let ids: Vec<_> = row
            .answers(&records)
            .into_iter()
            .map(|(_, figure)| figure.id.as_str())
            .collect();
        assert_eq!(ids, ["h3.roundtrip_ratio", "h3.nothing"]);
    }

    #[test]
    fn curves_belong_to_rows() {
        for curve in CURVES {
            assert!(ROWS.iter().any(|row| row.id == curve.id), "{}", curve.name);
            let series = curves(curve.id);
            let points = series.iter().map(|line| line.points.len());
            assert!(points.min() >= Some(2), "{}", curve.name);
        }
    }

    #[test]
    fn what_was_simulated_answers_its_row() {
        let mut record = sample("line");
        record.figures[0].id = "sim.red4mq.line_percent".to_owned();
        let rows = ["R5", "R6", "R4"].map(|id| ROWS.iter().find(|row| row.id == id).unwrap());
        let counts = rows.map(|row| row.answers(std::slice::from_ref(&record)).len());
        assert_eq!(counts, [1, 0, 0]);
    }

    #[test]
    fn a_row_has_an_id_of_its_own_and_something_that_answers_it() {
        for row in ROWS {
            assert_eq!(ROWS.iter().filter(|other| other.id == row.id).count(), 1);
            assert!(!row.figures.is_empty(), "{}", row.id);
        }
    }
}
