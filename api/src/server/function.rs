//! The handler that runs functions, and the bound on their number.

use super::Server;
use super::limits::{FUNCTION_WAIT_MAX, FUNCTIONS_WAITING_MAX};
use super::problems::{Busy, Other, TooLarge, Unreadable};
use super::respond::{Answer, JsonResult, blocking_in};
use super::shared::Shared;
use crate::types::{FunctionReport, FunctionRequest, Problem};
use axum::Json;
use axum::extract::State;
use std::io::PipeReader;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Places for functions that run, and a queue of bounded length for others.
pub(super) struct Places {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// Counts a waiting request until this value is dropped, since its client may go away meanwhile.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Places {
    pub fn new(at_once: usize) -> Self {
        Places {
            free: Arc::new(Semaphore::new(at_once)),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Takes a place, in the order of the requests.
    async fn take(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let full = |why: &str| {
            Problem::unavailable(format!("too many functions at once: {why}"))
                .with_remedy("try again in a moment")
        };
        let waiting = Waiting(&self.waiting);
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= FUNCTIONS_WAITING_MAX {
            return Err(full(&format!("{FUNCTIONS_WAITING_MAX} wait already")));
        }
        let free = Arc::clone(&self.free).acquire_owned();
        let place = tokio::time::timeout(FUNCTION_WAIT_MAX, free).await;
        drop(waiting);
        match place {
            Ok(Ok(place)) => Ok(place),
            _ => Err(full(&format!(
                "it has waited for {} s",
                FUNCTION_WAIT_MAX.as_secs()
            ))),
        }
    }

    /// Runs a function when there is a place. The function holds its place until it has ended. The pipe hangs up when
    /// the client goes away.
    async fn run<S, T>(
        &self,
        server: Arc<S>,
        call: impl FnOnce(&S, PipeReader) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem>
    where
        S: Send + Sync + 'static,
        T: Send + 'static,
    {
        let place = self.take().await?;
        // This future is dropped when the client goes away. Only the other end of the pipe is left then, and reports
        // a hang-up.
        let (client, _here) = std::io::pipe()
            .map_err(|error| Problem::failed(format!("making a pipe for a function: {error}")))?;
        blocking_in(place, server, move |server| call(server, client)).await
    }
}

/// Runs a program once, in an instance of its own without a network. The response has the program's output. The
/// program is ended when the client goes away.
#[utoipa::path(
    post,
    path = "/v1/functions",
    tag = "functions",
    request_body = FunctionRequest,
    responses(
        (status = 200, body = FunctionReport),
        Unreadable,
        TooLarge,
        Busy,
        Other,
    )
)]
pub async fn run_function<S: Server>(
    State(shared): State<Shared<S>>,
    request: JsonResult<FunctionRequest>,
) -> Answer<FunctionReport> {
    let request = request?.0;
    let run = shared.functions.run(shared.server, move |server, client| {
        server.run_function(request, client)
    });
    run.await.map(Json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::sync::mpsc::channel;

    // promise: 16.4
    #[tokio::test]
    async fn a_request_without_a_place_waits_and_one_beyond_the_queue_is_refused() {
        let places = Arc::new(Places::new(1));
        let first = places.take().await.expect("there is a place");
        let next = tokio::spawn({
            let places = Arc::clone(&places);
            async move { places.take().await.map(drop) }
        });
        while places.waiting.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        places
            .waiting
            .store(FUNCTIONS_WAITING_MAX, Ordering::Relaxed);
        let refused = places.take().await.map(drop).expect_err("there is no room");
        assert_eq!(refused.status, 503);
        assert_eq!(
            places.waiting.load(Ordering::Relaxed),
            FUNCTIONS_WAITING_MAX
        );
        drop(first);
        next.await.expect("no panic").expect("its turn has come");
        // A client that does not wait any more does not count.
        let _held = places.take().await.expect("there is a place");
        let given_up = tokio::time::timeout(std::time::Duration::ZERO, places.take()).await;
        assert!(given_up.is_err());
        assert_eq!(
            places.waiting.load(Ordering::Relaxed),
            FUNCTIONS_WAITING_MAX - 1
        );
    }

    // Catches: the place is given back when the client goes away, while the function still runs.
    // promise: 16.4
    #[tokio::test]
    async fn a_function_has_its_place_until_it_has_ended_also_when_its_client_has_gone() {
        let places = Arc::new(Places::new(1));
        let ((begun, has_begun), (hung_up, is_hung_up)) = (channel(), channel());
        let (release, released) = channel();
        let client = tokio::spawn({
            let places = Arc::clone(&places);
            let call = move |(): &(), mut client: PipeReader| {
                begun.send(()).expect("it is awaited");
                hung_up.send(client.read(&mut [0])).expect("it is awaited");
                // The function runs for some time after the client has gone.
                let _over = released.recv();
                Ok(())
            };
            async move { places.run(Arc::new(()), call).await }
        });
        while has_begun.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        client.abort();
        assert!(client.await.expect_err("it has gone").is_cancelled());
        let told = is_hung_up.recv().expect("it is told");
        assert_eq!(told.expect("a pipe"), 0, "its client has gone");
        assert_eq!(places.free.available_permits(), 0, "it still runs");
        release.send(()).expect("it waits");
        let next = places.run(Arc::new(()), |(), _| Ok(7)).await;
        assert_eq!(next.expect("its turn has come"), 7);
    }
}
