//! A server in memory, for tests of clients and of the router.

use crate::server::{Server, router};
use crate::types::{
    Amount, ApplyRequest, ApplyResponse, Capacity, ChainStats, ChainStatus, Change, Check,
    CheckStatus, CommandRequest, CommandResponse, Counters, DeleteRequest, Diagnostic,
    DoctorReport, Event, EventKind, EventPage, FunctionEnd, FunctionReport, FunctionRequest,
    GroupStats, GroupStatus, Health, InstanceSnapshot, InstanceState, InstanceStats,
    InstanceStatus, IoStats, IoStatus, IoThread, Kind, LinkStatus, Logs, MigrateReport,
    MigrateRequest, PauseRequest, PoolStatus, PortState, PortStats, PortStatus, Problem,
    RestoreReport, RestoreRequest, SavedInstance, ScaleReport, ScaleRequest, SecurityGroupStatus,
    Stats, SteeringStatus, SwitchStatus, TemplateStatus, Took, UpgradeReport, UplinkStats,
    UplinkStatus, Verb, Version,
};
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, watch};

/// A pcap file header (microseconds, Ethernet) and one frame of 14 bytes.
pub const PCAP: &[u8] = &[
    0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0, //
    1, 0, 0, 0, 2, 0, 0, 0, 14, 0, 0, 0, 14, 0, 0, 0, //
    2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0,
];

/// A server that responds with fixed figures and records the requests.
///
/// A document that contains `wrong` is refused, one that contains `fail` fails; a command `boom`
/// panics.
#[derive(Debug)]
pub struct FakeServer {
    requests: Mutex<Vec<String>>,
    events: Mutex<Vec<Event>>,
    newest: watch::Sender<u64>,
    snapshots: Mutex<u64>,
}

impl Default for FakeServer {
    fn default() -> Self {
        let server = FakeServer {
            requests: Mutex::default(),
            events: Mutex::default(),
            newest: watch::Sender::new(0),
            snapshots: Mutex::default(),
        };
        server.happen(EventKind::DaemonStarted, "the daemon started");
        server
    }
}

/// A lock that a panicking test cannot poison for the others.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FakeServer {
    /// Returns the recorded requests, in order.
    pub fn requests(&self) -> Vec<String> {
        lock(&self.requests).clone()
    }

    /// Creates an event.
    pub fn happen(&self, kind: EventKind, message: &str) {
        let mut events = lock(&self.events);
        let seq = events.len() as u64 + 1;
        events.push(Event {
            seq,
            time_ms: 1_700_000_000_000 + seq,
            kind,
            object: Some(Kind::Instance),
            name: "fw1".into(),
            message: message.into(),
        });
        self.newest.send_replace(seq);
    }

    fn note(&self, request: String) {
        lock(&self.requests).push(request);
    }

    /// Listens on a socket and serves until the runtime ends.
    ///
    /// # Errors
    /// The socket cannot be created.
    pub async fn listen(self: Arc<Self>, socket: &Path) -> io::Result<()> {
        let listener = UnixListener::bind(socket)?;
        tokio::spawn(async move { axum::serve(listener, router(self)).await });
        Ok(())
    }
}

fn known_instance(name: &str) -> Result<(), Problem> {
    if name == "fw1" {
        return Ok(());
    }
    Err(Problem::not_found(format!("there is no instance '{name}'"))
        .with_remedy("'nfluid get instances' lists them"))
}

fn counters(packets: u64) -> Counters {
    Counters {
        rx_packets: packets,
        rx_bytes: packets * 64,
        tx_packets: packets / 2,
        tx_bytes: packets * 32,
        rx_segments: packets * 3,
        rx_wire_bytes: packets * 172,
        tx_segments: packets / 2,
        tx_wire_bytes: packets * 32,
        marked_packets: 0,
        forwarded_packets: 0,
        drops: [("ring_full".to_owned(), 3), ("foreign_mac".to_owned(), 1)].into(),
    }
}

impl Server for FakeServer {
    fn version(&self) -> Version {
        Version {
            version: "0.0.0-fake".into(),
            api: "v1".into(),
            kernel: "6.1.0".into(),
            data_plane: vec!["loops: may_goto".into()],
        }
    }

    fn capacity(&self) -> Capacity {
        Capacity {
            cpus: vec![0, 1],
            share_per_mille: Amount::new(2000, 500),
            memory_bytes: Amount::new(4 << 30, 1 << 30),
            ports: Amount::new(32_767, 2),
            instances: Amount::new(32_767, 1),
            tiers: vec!["process".into()],
            nfs: vec!["bridge".into()],
            architecture: "x86_64".into(),
            labels: [("site".into(), "lab".into())].into(),
        }
    }

    fn health(&self) -> Health {
        Health::default()
    }

    fn apply(&self, request: ApplyRequest) -> Result<ApplyResponse, Problem> {
        let attached: Vec<&String> = request.attachments.keys().collect();
        self.note(format!(
            "apply {} dry_run={} merge={} attachments={attached:?}",
            request.file.as_deref().unwrap_or("?"),
            request.dry_run,
            request.merge
        ));
        if request.text.contains("wrong") {
            let error = Diagnostic {
                file: request.file,
                line: Some(3),
                column: Some(5),
                path: "instances.fw1.nf".into(),
                message: "unknown NF 'wrong'".into(),
                remedy: "there are: bridge".into(),
                ..Diagnostic::default()
            };
            return Err(Problem::invalid(
                "1 error; nothing was changed",
                vec![error],
            ));
        }
        if request.text.contains("fail") {
            return Err(Problem::failed("cannot create instance fw1").with_remedy("make room"));
        }
        let changes = if request.text.contains("again") {
            Vec::new()
        } else {
            vec![Change {
                verb: Verb::Created,
                kind: Kind::Instance,
                name: "fw1".into(),
                details: Vec::new(),
            }]
        };
        Ok(ApplyResponse {
            dry_run: request.dry_run,
            changes,
            ..ApplyResponse::default()
        })
    }

    fn delete(&self, request: DeleteRequest) -> Result<ApplyResponse, Problem> {
        let names: Vec<String> = request
            .objects
            .iter()
            .map(|object| format!("{} {}", object.kind, object.name))
            .collect();
        self.note(format!(
            "delete {names:?} text={} everything={} dry_run={}",
            request.text.is_some(),
            request.everything,
            request.dry_run
        ));
        for object in &request.objects {
            known_instance(&object.name)?;
        }
        Ok(ApplyResponse {
            dry_run: request.dry_run,
            changes: vec![Change {
                verb: Verb::Removed,
                kind: Kind::Instance,
                name: "fw1".into(),
                details: Vec::new(),
            }],
            ..ApplyResponse::default()
        })
    }

    fn deployment(&self) -> Value {
        json!({"version": 1, "instances": {"fw1": {"nf": "firewall", "ports": {"in": {}, "out": {}}}}})
    }

    fn instances(&self) -> Vec<InstanceStatus> {
        vec![InstanceStatus {
            name: "fw1".into(),
            nf: "firewall".into(),
            tier: "process".into(),
            state: InstanceState::Running,
            unhealthy: None,
            paused_traffic: None,
            pid: Some(4711),
            uptime_ms: Some(90_061_000),
            restarts: 2,
            last_exit: Some("killed by signal 9".into()),
            io: "inline".into(),
            trust: None,
            wake: None,
            group: Some("gold".into()),
            placement: "free".into(),
            flavor: "small".into(),
            ring: 64,
            share_percent: Some(30.0),
            memory_limit_bytes: 16 << 20,
            ports: vec!["fw1.in".into(), "fw1.out".into()],
            config: json!({"default": "drop"}),
            ..InstanceStatus::default()
        }]
    }

    fn groups(&self) -> Vec<GroupStatus> {
        vec![GroupStatus {
            name: "gold".into(),
            share_percent: Some(60.0),
            cap_percent: Some(150.0),
            guarantee_percent: Some(50.0),
            instances: vec!["fw1".into()],
            ..GroupStatus::default()
        }]
    }

    fn ports(&self) -> Vec<PortStatus> {
        ["fw1.in", "fw1.out"]
            .map(|name| PortStatus {
                name: name.into(),
                mac: "02:00:00:00:00:01".into(),
                state: PortState::Up,
                destination: "switch lan".into(),
                ring: 64,
                queues: 1,
                counters: counters(1_000),
            })
            .into()
    }

    fn switches(&self) -> Vec<SwitchStatus> {
        vec![SwitchStatus {
            name: "lan".into(),
            ports: vec!["fw1.in".into(), "fw1.out".into()],
            ageing_s: 300,
            addresses: Some(2),
            owner: None,
        }]
    }

    fn security_groups(&self) -> Vec<SecurityGroupStatus> {
        vec![SecurityGroupStatus {
            name: "web".into(),
            rules: 2,
            ports: vec!["fw1.in".into()],
            addresses: vec!["10.0.0.5/32".into()],
            owner: None,
        }]
    }

    fn links(&self) -> Vec<LinkStatus> {
        vec![LinkStatus {
            name: "fw1.out--nat1.in".into(),
            a: "fw1.out".into(),
            b: "nat1.in".into(),
            state: PortState::Up,
        }]
    }

    fn chains(&self) -> Vec<ChainStatus> {
        vec![ChainStatus {
            name: "web".into(),
            from: "wan".into(),
            to: "lan0".into(),
            via: vec!["fw1".into()],
            rules: vec!["proto tcp dport 80".into()],
            return_rules: vec!["proto tcp sport 80".into()],
            state: PortState::Up,
        }]
    }

    fn uplinks(&self) -> Vec<UplinkStatus> {
        vec![UplinkStatus {
            name: "wan".into(),
            interface: "eth1".into(),
            kind: "xdp".into(),
            mode: Some("generic".into()),
            mode_reason: Some("the driver has no native mode".into()),
            frames: "plain".into(),
            frames_reason: Some("instance 'own' takes plain frames".into()),
            long_bytes: 8 << 20,
            state: PortState::Down,
            reason: Some("the interface vanished".into()),
            mac: "02:00:00:00:00:02".into(),
            destination: "port fw1.in".into(),
            counters: counters(500),
            steering: Some(SteeringStatus {
                mode: "hybrid".into(),
                queues: 2,
                rules: 2,
                flows: 6,
                rules_by_xdp: 1,
                reason: Some("rule 3: it matches everything".into()),
                frames: 4000,
                frames_by_xdp: 12,
            }),
            ..UplinkStatus::default()
        }]
    }

    fn templates(&self) -> Vec<TemplateStatus> {
        vec![TemplateStatus {
            name: "subscriber".into(),
            from: "access".into(),
            to: "core".into(),
            clients: 2,
            most: 1000,
            per_second: 100,
            made: 5,
            ended: 3,
            refused: [("most".to_owned(), 7)].into(),
        }]
    }

    fn pools(&self) -> Vec<PoolStatus> {
        vec![PoolStatus {
            name: "small".into(),
            flavor: "small".into(),
            ports: 2,
            purpose: "built-in".into(),
            wanted: 8,
            ready: 7,
            taken: 3,
            ..PoolStatus::default()
        }]
    }

    fn io(&self) -> IoStatus {
        IoStatus {
            cores: vec![1],
            idle: "sleep".into(),
            cap_percent: Some(50.0),
            pid: Some(4712),
            stats: IoStats {
                cpu_ns: 2_500_000_000,
                throttled_ns: None,
                threads: vec![IoThread {
                    name: "merge fw1".into(),
                    model: "merge".into(),
                    instances: vec!["fw1".into()],
                    core: Some(0),
                    cpu_ns: 2_500_000_000,
                }],
            },
            ..IoStatus::default()
        }
    }

    /// Each snapshot is a second after the previous one, with 1000 packets and 0.25 s of CPU time more.
    fn instance_stats(&self, instance: &str) -> Result<InstanceSnapshot, Problem> {
        known_instance(instance)?;
        let Stats {
            time_ns,
            mut ports,
            mut instances,
            ..
        } = self.stats();
        ports.retain(|port| port.name.starts_with("fw1."));
        Ok(InstanceSnapshot {
            time_ns,
            instance: instances.remove(0),
            ports,
        })
    }

    fn stats(&self) -> Stats {
        let mut snapshots = lock(&self.snapshots);
        *snapshots += 1;
        let n = *snapshots;
        Stats {
            pools: Vec::new(),
            templates: Vec::new(),
            time_ns: n * 1_000_000_000,
            io: None,
            ports: ["fw1.in", "fw1.out", "wan"]
                .map(|name| PortStats {
                    name: name.into(),
                    counters: counters(n * 1_000),
                    rx_ring_used: Some(3),
                    rx_ring_size: Some(64),
                    calls: Some(n * 10),
                    ..PortStats::default()
                })
                .into(),
            instances: vec![InstanceStats {
                name: "fw1".into(),
                cpu_ns: n * 250_000_000,
                cost_ns: Some(250_000.0),
                share_percent: Some(30.0),
                memory_bytes: Some(5 << 20),
                memory_limit_bytes: Some(16 << 20),
                restarts: 2,
                metrics: [("rules_matched_total".to_owned(), 42.0)].into(),
                ..InstanceStats::default()
            }],
            uplinks: vec![UplinkStats {
                name: "wan".into(),
                receive_ns: n * 40_000_000,
                frame_ns: Some(40.0),
            }],
            groups: vec![GroupStats {
                name: "gold".into(),
                cpu_ns: n * 300_000_000,
                io_cpu_ns: Some(n * 10_000_000),
                share_percent: Some(60.0),
                throttled_ns: None,
            }],
            chains: vec![ChainStats {
                name: "web".into(),
                forward_packets: n * 1_000,
                return_packets: n * 900,
                forward_waiting: Some(12),
                return_waiting: Some(0),
                ..ChainStats::default()
            }],
            congestion: None,
        }
    }

    fn events(&self, since: u64) -> EventPage {
        let events = lock(&self.events);
        EventPage {
            events: events.iter().filter(|e| e.seq > since).cloned().collect(),
            next: events.len() as u64,
            missed: 0,
        }
    }

    fn newest_event(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    fn logs(&self, instance: &str, since: u64, tail: usize) -> Result<Logs, Problem> {
        known_instance(instance)?;
        let lines: Vec<String> = (since..5).map(|i| format!("line {i}")).collect();
        let skipped = lines.len().saturating_sub(tail);
        Ok(Logs {
            lines: lines.into_iter().skip(skipped).collect(),
            next: 5,
        })
    }

    fn command(&self, instance: &str, command: CommandRequest) -> Result<CommandResponse, Problem> {
        known_instance(instance)?;
        assert!(command.name != "boom", "a bug in the server");
        Ok(CommandResponse {
            output: json!({"command": command.name, "args": command.args}),
        })
    }

    fn restart(&self, instance: &str) -> Result<(), Problem> {
        known_instance(instance)?;
        self.note(format!("restart {instance}"));
        Ok(())
    }

    fn pause(&self, instance: &str, request: PauseRequest) -> Result<Took, Problem> {
        known_instance(instance)?;
        self.note(format!("pause {instance} {}", request.traffic));
        Ok(Took { took_us: 120 })
    }

    fn unpause(&self, instance: &str) -> Result<Took, Problem> {
        known_instance(instance)?;
        self.note(format!("unpause {instance}"));
        Ok(Took { took_us: 80 })
    }

    fn upgrade(&self, instance: &str) -> Result<UpgradeReport, Problem> {
        known_instance(instance)?;
        self.note(format!("upgrade {instance}"));
        Ok(UpgradeReport {
            took_us: 6200,
            silent_us: 340,
            settle_us: 0,
            export_us: 120,
            import_us: 140,
            state_taken: 1000,
            state_left_out: 2,
        })
    }

    fn scale(&self, instance: &str, request: ScaleRequest) -> Result<ScaleReport, Problem> {
        known_instance(instance)?;
        self.note(format!("scale {instance} {}", request.replicas));
        Ok(ScaleReport {
            took_us: 31_400,
            held_us: 820,
            state_taken: 600,
            state_left_out: 0,
        })
    }

    fn migrate(&self, instance: &str, request: MigrateRequest) -> Result<MigrateReport, Problem> {
        known_instance(instance)?;
        let Some(to) = request.to else {
            return Err(Problem::conflict("no move waits for an answer"));
        };
        self.note(format!("migrate {instance} to {to}"));
        Ok(MigrateReport {
            took_us: 41_000,
            blocked_us: 1900,
            ready_us: 1200,
            state_bytes: 61_000,
            state_taken: 1000,
            state_left_out: 2,
            frames: 190,
            frames_left_out: 0,
            frames_dropped: 0,
            took: crate::types::Timeline::default(),
        })
    }

    fn save(&self, instance: &str) -> Result<SavedInstance, Problem> {
        known_instance(instance)?;
        Ok(SavedInstance {
            image: "TkZMSU1BR0U=".into(),
            took_us: 900,
            state_bytes: 61_000,
            frames: 3,
        })
    }

    fn restore(&self, request: RestoreRequest) -> Result<RestoreReport, Problem> {
        if request.image != "TkZMSU1BR0U=" {
            return Err(Problem::bad_request("this is no saved instance"));
        }
        let name = request.name.unwrap_or_else(|| "fw1".into());
        self.note(format!("restore {name} paused={}", request.paused));
        Ok(RestoreReport {
            name,
            took_us: 1800,
            state_taken: 1000,
            frames: 3,
            ..RestoreReport::default()
        })
    }

    fn capture(&self, port: &str) -> Result<mpsc::Receiver<Vec<u8>>, Problem> {
        if port != "fw1.in" {
            return Err(Problem::not_found(format!("there is no port '{port}'")));
        }
        let (sender, receiver) = mpsc::channel(4);
        for piece in PCAP.chunks(24) {
            // The channel has room for all pieces.
            let _ = sender.try_send(piece.to_vec());
        }
        Ok(receiver)
    }

    fn run_function(
        &self,
        request: FunctionRequest,
        _client: io::PipeReader,
    ) -> Result<FunctionReport, Problem> {
        if request.program.is_empty() {
            return Err(Problem::bad_request("the function is no program"));
        }
        Ok(FunctionReport {
            end: FunctionEnd::Exited(7),
            output: request.input,
            ..FunctionReport::default()
        })
    }

    fn doctor(&self) -> DoctorReport {
        let check = |name: &str, status, detail: &str, remedy: &str| Check {
            name: name.into(),
            status,
            detail: detail.into(),
            remedy: remedy.into(),
        };
        DoctorReport {
            checks: vec![
                check("kernel", CheckStatus::Ok, "6.1.0", ""),
                check(
                    "bpf: may_goto",
                    CheckStatus::Warn,
                    "missing: loops are slower",
                    "use a kernel from 6.9 on",
                ),
            ],
        }
    }
}
