//! A server with OpenVIM's interface, `nfluid-openvim`, as a process of a test's or an experiment's own.

use crate::port::free_ports;
use crate::process::signal;
use crate::{http, interrupt};
use anyhow::{Context, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time after which a server will not serve.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server; ended when dropped. Its database stays in its folder.
#[derive(Debug)]
pub struct OpenVim {
    program: PathBuf,
    folder: PathBuf,
    arguments: Vec<String>,
    /// The ports of users and of administrators.
    ports: [u16; 2],
    process: Option<Child>,
}

impl OpenVim {
    /// Prepares a server with its database in `folder`, and further arguments.
    ///
    /// # Errors
    /// No port is free.
    pub fn new(program: PathBuf, folder: &Path, arguments: Vec<String>) -> anyhow::Result<Self> {
        Ok(OpenVim {
            program,
            folder: folder.to_owned(),
            arguments,
            ports: free_ports()?,
            process: None,
        })
    }

    /// Starts the server, and waits until it serves.
    ///
    /// # Errors
    /// It does not.
    pub fn start(&mut self) -> anyhow::Result<()> {
        let path = self.folder.join("openvim.log");
        let log = File::options().create(true).append(true).open(&path)?;
        let [users, administrators] = self.ports.map(|port| format!("127.0.0.1:{port}"));
        let process = Command::new(&self.program)
            .args(["--listen", &users, "--admin-listen", &administrators])
            .arg("--database")
            .arg(self.folder.join("openvim.redb"))
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn();
        let process = self.process.insert(process.context("nfluid-openvim")?);
        let begun = Instant::now();
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports[1]));
        while http::request(server, "GET", "/openvim/", &Value::Null).is_err() {
            interrupt::check()?;
            let has_ended = process.try_wait().is_ok_and(|end| end.is_some());
            ensure!(
                !has_ended && begun.elapsed() < PATIENCE,
                "nfluid-openvim does not serve: {}",
                std::fs::read_to_string(&path).unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Kills the server, and does not wait for its end.
    pub fn crash(&self) {
        if let Some(process) = &self.process {
            signal(process.id(), Signal::KILL);
        }
    }

    /// Ends the server as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _gone = process.kill();
            let _status = process.wait();
        }
    }

    /// Returns the address of administrators.
    pub fn administrators(&self) -> String {
        format!("http://127.0.0.1:{}/openvim", self.ports[1])
    }

    /// Sends a request of an administrator, and returns status and answer.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports[1]));
        let path = format!("/openvim/{path}");
        let (status, text) = http::request(server, method, &path, body)?;
        let answer = serde_json::from_str(&text).with_context(|| text.clone())?;
        Ok((status, answer))
    }

    /// Sends a request that has to succeed.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub fn must(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<Value> {
        let (status, answer) = self.ask(method, path, body)?;
        ensure!(status == 200, "{method} {path}: {answer}");
        Ok(answer)
    }

    /// Makes an object, and returns its id.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub fn make(&self, path: &str, word: &str, object: Value) -> anyhow::Result<String> {
        let answer = self.must("POST", path, &json!({ word: object }))?;
        let id = answer[word]["id"].as_str().context("no id")?;
        Ok(id.to_owned())
    }
}

impl Drop for OpenVim {
    fn drop(&mut self) {
        self.kill();
    }
}
