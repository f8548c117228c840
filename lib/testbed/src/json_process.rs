//! A process that answers lines of JSON with lines of JSON: `{"ok": result}` or `{"error": text}`.

use anyhow::{Context, bail};
use serde_json::{Map, Value};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The process; killed when dropped.
#[derive(Debug)]
pub struct JsonProcess {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl JsonProcess {
    /// Starts it.
    ///
    /// # Errors
    /// The system does not start it.
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", command.get_program().display()))?;
        let input = process.stdin.take().context("a pipe")?;
        let output = BufReader::new(process.stdout.take().context("a pipe")?);
        Ok(JsonProcess {
            process,
            input,
            output,
        })
    }

    /// Asks it a line, and returns the result.
    ///
    /// # Errors
    /// The process answers with an error, or has ended.
    pub fn ask(&mut self, line: &Value) -> anyhow::Result<Value> {
        writeln!(self.input, "{line}").context("the process has ended")?;
        let mut answer = String::new();
        self.output.read_line(&mut answer)?;
        let mut answer: Map<String, Value> =
            serde_json::from_str(&answer).context("the process has ended")?;
        match answer.remove("ok") {
            Some(result) => Ok(result),
            None => bail!("{}", answer["error"].as_str().unwrap_or_default()),
        }
    }
}

impl Drop for JsonProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
