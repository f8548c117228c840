//! The kernel's view of a host's TCP connections (`ss`).

use anyhow::Context;
use nfluid_testbed::namespace::Namespace;

/// A connection or a subflow.
#[derive(Clone, Debug, PartialEq)]
pub struct Connection {
    /// Address of the other end.
    pub to: String,
    /// True for a subflow of a connection that may have several.
    pub is_subflow: bool,
    /// Bytes that the other end has acknowledged.
    pub acked: u64,
    /// Retransmitted segments.
    pub retransmits: u64,
    /// Smoothed round trip time.
    pub rtt_us: f64,
}

/// Returns the established connections to a port.
///
/// # Errors
/// `ss` fails, or its output cannot be read.
pub fn connections(host: &Namespace, port: u16) -> anyhow::Result<Vec<Connection>> {
    let output = host.run(&format!("ss -tinHO state established dport = :{port}"))?;
    output.lines().map(read).collect()
}

/// Parses a line: queues, local address, remote address, and `key:value` words.
fn read(line: &str) -> anyhow::Result<Connection> {
    let mut words = line.split_whitespace();
    let to = words
        .nth(3)
        .and_then(|address| address.rsplit_once(':'))
        .with_context(|| format!("ss tells no address: {line}"))?;
    let value = |key: &str| {
        let mut words = line.split_whitespace();
        words.find_map(|word| word.strip_prefix(key)?.strip_prefix(':'))
    };
    let second = |text: &str| text.split_once('/').map(|(_, second)| second.to_owned());
    let rtt_ms = value("rtt").and_then(|text| text.split('/').next()?.parse::<f64>().ok());
    let again = value("retrans").and_then(second);
    Ok(Connection {
        to: to.0.to_owned(),
        is_subflow: line.contains("tcp-ulp-mptcp"),
        acked: value("bytes_acked").map_or(Ok(0), str::parse)?,
        retransmits: again.map_or(Ok(0), |text| text.parse())?,
        rtt_us: rtt_ms.context("ss tells no round trip time")? * 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::{Connection, read};

    #[test]
    fn a_line_of_ss_is_a_connection() {
        let line = "0 1638776 10.1.0.1:45802 10.1.0.2:5201 cubic wscale:10,10 rto:204 rtt:2.078/2.995 mss:1448 \
                    bytes_sent:552992469 bytes_retrans:1448 bytes_acked:551354030 retrans:0/7 minrtt:0.005 tcp-ulp-mptcp flags:Mmec";
        let wanted = Connection {
            to: "10.1.0.2".to_owned(),
            is_subflow: true,
            acked: 551_354_030,
            retransmits: 7,
            rtt_us: 2078.0,
        };
        assert_eq!(read(line).expect("a connection"), wanted);
        let fresh = read("0 0 10.1.0.1:45802 10.1.0.2:5201 cubic rtt:0.5/0.25").expect("another");
        assert_eq!((fresh.acked, fresh.is_subflow), (0, false));
        assert!(read("0 0 nonsense").is_err());
    }
}
