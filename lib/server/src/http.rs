//! An HTTP server with one page (RFC 9110, RFC 9112): every target of a GET or HEAD request is answered with it. For what is
//! created when a client comes, and for "out of service".

use crate::config::{Endpoint, default_connections};
use crate::server::{Server, Surroundings};
use crate::service::{Answer, Service, UnixTime};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::IpAddr;
use httparse::{Header, Request, Status};
use ipnet::IpNet;
use nfluid_nf::{ConfigError, NetworkFunction, PortInfo};
use serde::Deserialize;
use serde_json::Value;

/// Most bytes of the page.
const BODY_MAX: usize = 64 << 10;
/// Most header fields of a request.
const FIELDS_MAX: usize = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    addresses: Vec<IpNet>,
    #[serde(default)]
    gateways: Vec<IpAddr>,
    port: Option<u16>,
    #[serde(default = "default_connections")]
    connections: usize,
    #[serde(default = "default_body")]
    body: String,
    #[serde(default = "default_content_type")]
    content_type: String,
    #[serde(default = "default_status")]
    status: u16,
}

fn default_body() -> String {
    "It works.\n".to_string()
}

fn default_content_type() -> String {
    "text/plain; charset=utf-8".to_string()
}

fn default_status() -> u16 {
    200
}

/// The page.
struct Http {
    body: String,
    content_type: String,
    status: u16,
}

/// Builds a server.
///
/// # Errors
/// The configuration has a value that cannot be used, or there is not one port.
pub fn build(
    config: &Value,
    ports: &[PortInfo],
    surroundings: Surroundings,
) -> Result<Box<dyn NetworkFunction>, ConfigError> {
    Ok(Box::new(Server::<Http>::new(config, ports, surroundings)?))
}

impl Service for Http {
    const PORT: u16 = 80;
    const LONGEST_REQUEST: usize = 8 << 10;

    fn parse(config: &Value) -> Result<(Endpoint, Self), ConfigError> {
        let config: Config = nfluid_nf::config::parse(config)?;
        if config.body.len() > BODY_MAX {
            let message = format!("at most {BODY_MAX} bytes");
            return Err(ConfigError::at("body", message));
        }
        let is_value = |byte: u8| byte == b'\t' || (b' '..=b'~').contains(&byte);
        if !config.content_type.bytes().all(is_value) {
            let message = "a media type, as in 'text/html'".to_string();
            return Err(ConfigError::at("content_type", message));
        }
        // Others have no body, or say something about another connection.
        if !matches!(config.status, 200 | 400..=599) {
            let message = "200, or 400 to 599".to_string();
            return Err(ConfigError::at("status", message));
        }
        let endpoint = Endpoint {
            addresses: config.addresses,
            gateways: config.gateways,
            port: config.port,
            connections: config.connections,
        };
        let page = Http {
            body: config.body,
            content_type: config.content_type,
            status: config.status,
        };
        Ok((endpoint, page))
    }

    fn answer(&self, _now: UnixTime, said: &[u8]) -> Answer {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut request = Request::new(&mut fields);
        match request.parse(said) {
            Ok(Status::Complete(understood)) => match refusal(&request) {
                Some(status) => refuse(status),
                None => self.page(&request, understood),
            },
            Ok(Status::Partial) if said.len() < Self::LONGEST_REQUEST => Answer::Wait,
            Ok(Status::Partial) | Err(httparse::Error::TooManyHeaders) => refuse(431),
            Err(httparse::Error::Version) => refuse(505),
            Err(_) => refuse(400),
        }
    }
}

impl Http {
    fn page(&self, request: &Request<'_, '_>, understood: usize) -> Answer {
        let closes = closes(request);
        let mut bytes = head(self.status, &self.content_type, self.body.len(), closes);
        if request.method != Some("HEAD") {
            bytes.extend_from_slice(self.body.as_bytes());
        }
        Answer::Say {
            bytes,
            understood,
            closes,
        }
    }
}

/// Returns the status with which a request is refused, if it is.
fn refusal(request: &Request<'_, '_>) -> Option<u16> {
    // RFC 9112, 3.2: exactly one Host field in HTTP/1.1.
    let hosts = fields(request, "host").count();
    if hosts > 1 || (hosts == 0 && request.version == Some(1)) {
        return Some(400);
    }
    if !matches!(request.method, Some("GET" | "HEAD")) {
        return Some(405);
    }
    // Content would have to be skipped, and nobody sends any with these methods.
    let has_content = fields(request, "transfer-encoding").next().is_some()
        || fields(request, "content-length").any(|field| field.value != b"0");
    has_content.then_some(413)
}

/// Returns true if the connection ends behind the answer (RFC 9112, 9.3).
fn closes(request: &Request<'_, '_>) -> bool {
    let says = |option: &str| {
        fields(request, "connection").any(|field| {
            let mut options = field.value.split(|byte| *byte == b',');
            options.any(|it| it.trim_ascii().eq_ignore_ascii_case(option.as_bytes()))
        })
    };
    says("close") || (request.version == Some(0) && !says("keep-alive"))
}

fn fields<'a>(request: &'a Request<'_, '_>, name: &'a str) -> impl Iterator<Item = &'a Header<'a>> {
    let all = request.headers.iter();
    all.filter(move |field| field.name.eq_ignore_ascii_case(name))
}

fn refuse(status: u16) -> Answer {
    let body = format!("{}\n", reason(status));
    let mut bytes = head(status, &default_content_type(), body.len(), true);
    bytes.extend_from_slice(body.as_bytes());
    Answer::Say {
        bytes,
        understood: 0,
        closes: true,
    }
}

fn head(status: u16, content_type: &str, length: usize, closes: bool) -> Vec<u8> {
    let connection = if closes { "close" } else { "keep-alive" };
    let allow = if status == 405 {
        "allow: GET, HEAD\r\n"
    } else {
        ""
    };
    let reason = reason(status);
    format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n{allow}connection: {connection}\r\n\r\n"
    )
    .into_bytes()
}

/// The reason phrases of what this server says by itself, and of the statuses that pages have most often.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}
