//! Programs of instances that are removed by name end by themselves before the controller removes the instances: others make
//! changes meanwhile.

use super::Daemon;
use crate::host::{self, Ending, lock};
use nfluid_api::types::{DeleteRequest, Kind, Problem, STOP_WAIT_MS_MAX};
use nfluid_control::access::{Stop, StopSignal};
use nfluid_control::quantity::Millis;
use std::thread;

/// Programs that are waited for at the same time; each has a thread.
const AT_ONCE: usize = 32;

impl Daemon {
    /// Asks the programs of the request's instances to end, and waits for them. What cannot be removed is not
    /// asked. Until the result is dropped, the ends are no crashes.
    ///
    /// # Errors
    /// The request asks for something that cannot be, or cannot be carried out.
    pub(super) fn end_programs<'a>(
        &'a self,
        request: &'a DeleteRequest,
    ) -> Result<Vec<Ending<'a>>, Problem> {
        let stop = read(request)?;
        let named = request
            .objects
            .iter()
            .filter(|it| it.kind == Kind::Instance);
        let has_time = |name: &&str| lock(&self.host).may_say_farewell(name);
        let names: Vec<&str> = named.map(|it| it.name.as_str()).filter(has_time).collect();
        if request.dry_run || names.is_empty() {
            return Ok(Vec::new());
        }
        let plan = DeleteRequest {
            dry_run: true,
            ..request.clone()
        };
        self.controller().delete(&plan)?;
        let end = |name| host::prepare_end(&self.host, name, stop);
        let mut endings = Vec::new();
        for some in names.chunks(AT_ONCE) {
            endings.extend(thread::scope(|scope| {
                let waits = some.iter().map(|name| scope.spawn(move || end(name)));
                let waits: Vec<_> = waits.collect();
                let ended = waits.into_iter().filter_map(|wait| wait.join().ok());
                ended.flatten().collect::<Vec<_>>()
            }));
        }
        Ok(endings)
    }
}

fn read(request: &DeleteRequest) -> Result<Stop, Problem> {
    let signal = request.stop_signal.as_ref().map(|text| {
        StopSignal::find(text).ok_or_else(|| {
            let names: Vec<_> = StopSignal::names().collect();
            Problem::bad_request(format!("stop_signal: '{text}' asks no program to end"))
                .with_remedy(format!("write one of {}", names.join(", ")))
        })
    });
    let wait = request.stop_wait_ms;
    if wait.is_some_and(|wait| wait > STOP_WAIT_MS_MAX) {
        let why = format!("stop_wait_ms: at most {STOP_WAIT_MS_MAX} ms are possible");
        return Err(
            Problem::bad_request(why).with_remedy("'stop' of the instance has no such bound")
        );
    }
    Ok(Stop {
        signal: signal.transpose()?,
        wait: wait.map(Millis),
    })
}
