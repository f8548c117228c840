//! Members that note what they are asked, for tests.

use super::division::Member;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

/// The requests to members, in the order of their answers.
pub type Log = Arc<Mutex<Vec<Value>>>;

/// Takes the requests to members.
pub fn log_of(log: &Log) -> Vec<Value> {
    std::mem::take(&mut *log.lock().expect("whole"))
}

/// A member with the port of its number, which notes what it is asked. `before` makes its answer.
pub fn member(
    folder: &Path,
    number: u8,
    log: &Log,
    before: impl Fn(&Value) -> Value + Send + 'static,
) -> Member {
    let control = folder.join(number.to_string());
    let listener = UnixListener::bind(&control).expect("a socket");
    let log = Arc::clone(log);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut line = String::new();
            let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
            if reader.read_line(&mut line).is_ok_and(|read| read > 0) {
                let mut asked: Value = serde_json::from_str(&line).expect("JSON");
                let answer = before(&asked);
                asked["member"] = json!(number);
                log.lock().expect("whole").push(asked);
                let _gone = stream.write_all(format!("{answer}\n").as_bytes());
            }
        }
    });
    Member {
        number,
        control,
        ports: vec![u32::from(number)],
        runs: true,
    }
}

/// The answer of a member that does what it is asked.
pub fn done(_asked: &Value) -> Value {
    json!({ "ok": { "state_bytes": 7, "taken": 2, "left_out": 1 } })
}
