//! Heartbeat of an NF. The daemon asks at one look, reads the answer at a later one, and never waits.
//!
//! The NF is hostile: it may answer nothing, nonsense, or without an end. One question is out at a time. The daemon reads no
//! more bytes of an answer than a right one has.

use super::ask::open;
use nfluid_control::health::Answer;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

const QUESTION: &[u8] = b"{\"op\":\"beat\"}\n";
const ANSWER: &[u8] = b"{\"ok\":null}\n";
/// The answer of an NF whose work was late ([`crate::answer::LATE`]).
const LATE: &[u8] = b"{\"ok\":\"late\"}\n";
/// The answer of a program that an older daemon has started. It does not know the question, but it is alive.
const REFUSAL: &[u8] = b"{\"error\":";

/// The question to one NF.
pub struct Beat {
    control: PathBuf,
    /// The connection, and what has come of the answer.
    asked: Option<(UnixStream, Vec<u8>)>,
}

impl Beat {
    /// A heartbeat that was not asked for yet.
    pub fn new(control: PathBuf) -> Self {
        Beat {
            control,
            asked: None,
        }
    }

    /// Returns what became of the question that is out. Asks the next one if none is out.
    pub fn look(&mut self) -> Answer {
        let answer = match &mut self.asked {
            None => Answer::NotAsked,
            Some((stream, got)) => read(stream, got),
        };
        if answer == Answer::Awaited {
            return answer;
        }
        self.asked = None;
        match ask(&self.control) {
            Ok(stream) => self.asked = Some((stream, Vec::new())),
            // The fault of the last answer says more.
            Err(_) if matches!(answer, Answer::Wrong(_)) => {}
            Err(_) => return Answer::Wrong("it takes no question on its control socket"),
        }
        answer
    }
}

fn ask(control: &Path) -> std::io::Result<UnixStream> {
    let mut stream = open(control)?;
    stream.write_all(QUESTION)?;
    Ok(stream)
}

/// Reads what has come, behind what `got` has of the answer.
fn read(stream: &mut UnixStream, got: &mut Vec<u8>) -> Answer {
    let mut buffer = [0; LATE.len()];
    let room = buffer.len().saturating_sub(got.len());
    match stream.read(&mut buffer[..room]) {
        Ok(0) => Answer::Wrong("it ends the conversation on its control socket"),
        Ok(length) => {
            got.extend_from_slice(&buffer[..length]);
            judge(got)
        }
        Err(error) => match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => Answer::Awaited,
            _ => Answer::Wrong("it ends the conversation on its control socket"),
        },
    }
}

fn judge(got: &[u8]) -> Answer {
    let answers = [ANSWER, REFUSAL, LATE];
    if got.starts_with(LATE) {
        Answer::Late
    } else if answers.iter().any(|answer| got.starts_with(answer)) {
        Answer::Came
    } else if answers.iter().any(|answer| answer.starts_with(got)) {
        Answer::Awaited
    } else {
        Answer::Wrong("it answers nonsense on its control socket")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;
    use std::os::unix::net::UnixListener;

    #[test]
    fn the_question_is_a_request() {
        let line = Request::Beat.line().expect("JSON");
        assert_eq!(line.as_bytes(), QUESTION);
    }

    struct Nf {
        listener: UnixListener,
        beat: Beat,
        _directory: tempfile::TempDir,
    }

    fn nf() -> Nf {
        let directory = tempfile::tempdir().expect("it works");
        let path = directory.path().join("control");
        Nf {
            listener: UnixListener::bind(&path).expect("it works"),
            beat: Beat::new(path),
            _directory: directory,
        }
    }

    impl Nf {
        /// Takes the next question.
        fn asked(&self) -> UnixStream {
            let (mut stream, _) = self.listener.accept().expect("it works");
            let mut question = [0; QUESTION.len()];
            stream.read_exact(&mut question).expect("it works");
            assert_eq!(question, QUESTION);
            stream
        }
    }

    #[test]
    fn an_answer_may_come_in_pieces_and_late() {
        let mut nf = nf();
        assert_eq!(nf.beat.look(), Answer::NotAsked);
        let mut stream = nf.asked();
        assert_eq!(nf.beat.look(), Answer::Awaited);
        for piece in ANSWER[..ANSWER.len() - 1].chunks(1) {
            stream.write_all(piece).expect("it works");
            assert_eq!(nf.beat.look(), Answer::Awaited);
        }
        stream.write_all(b"\n").expect("it works");
        assert_eq!(nf.beat.look(), Answer::Came);
        nf.asked();
    }

    // promise: 31.16
    #[test]
    fn an_answer_says_whether_work_was_late() {
        let line = crate::answer::Answer::Ok(crate::answer::LATE.into()).line();
        assert_eq!(line.expect("JSON"), LATE);
        let mut nf = nf();
        for (said, expected) in [(LATE, Answer::Late), (ANSWER, Answer::Came)] {
            nf.beat.look();
            nf.asked().write_all(said).expect("it works");
            assert_eq!(nf.beat.look(), expected);
            drop(nf.asked());
            nf.beat.look();
        }
    }

    #[test]
    fn a_refusal_is_a_sign_of_life() {
        let mut nf = nf();
        nf.beat.look();
        let refusal = b"{\"error\":\"not a request\"}\n";
        nf.asked().write_all(refusal).expect("it works");
        assert_eq!(nf.beat.look(), Answer::Came);
    }

    // promise: 5.16
    #[test]
    fn of_a_hostile_answer_no_more_is_read_than_of_a_right_one() {
        let mut nf = nf();
        nf.beat.look();
        for _ in 0..3 {
            let mut stream = nf.asked();
            stream.write_all(&[b'x'; 10_000]).expect("it works");
            let answer = nf.beat.look();
            assert_eq!(
                answer,
                Answer::Wrong("it answers nonsense on its control socket")
            );
        }
        drop(nf.asked());
        let ended = Answer::Wrong("it ends the conversation on its control socket");
        assert_eq!(nf.beat.look(), ended);
    }

    #[test]
    fn an_instance_that_accepts_no_connection_is_asked_once() {
        let mut nf = nf();
        nf.beat.look();
        for _ in 0..10_000 {
            assert_eq!(nf.beat.look(), Answer::Awaited);
        }
    }

    #[test]
    fn a_missing_control_socket_gets_no_request() {
        let mut beat = Beat::new("/nonexistent/control".into());
        let refused = Answer::Wrong("it takes no question on its control socket");
        assert_eq!(beat.look(), refused);
    }

    // promise: 5.16
    #[test]
    fn a_full_queue_holds_up_nobody() {
        let nf = nf();
        let mut waiting = Vec::new();
        while let Ok(stream) = open(&nf.beat.control) {
            waiting.push(stream);
        }
        let mut beat = nf.beat;
        let refused = Answer::Wrong("it takes no question on its control socket");
        assert_eq!(beat.look(), refused);
    }
}
