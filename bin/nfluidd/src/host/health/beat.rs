//! A question to an NF that nobody waits for: it is asked at one look, and its answer read at a later one.
//!
//! The NF is hostile: it may answer nothing, nonsense, or without an end. One question is out at a time, and of an answer
//! no more is read than a right one has.

use crate::host::nf_socket;
use nfluid_control::health::Answer;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

const QUESTION: &[u8] = b"{\"op\":\"beat\"}\n";
const ANSWER: &[u8] = b"{\"ok\":null}\n";
/// Of a program that an older daemon has started, which does not know the question: it is alive.
const REFUSAL: &[u8] = b"{\"error\":";

/// The question to one NF.
pub struct Beat {
    control: PathBuf,
    /// The way to it, and what has come of its answer.
    asked: Option<(UnixStream, Vec<u8>)>,
}

impl Beat {
    /// Nothing is asked yet.
    pub fn new(control: PathBuf) -> Self {
        Beat {
            control,
            asked: None,
        }
    }

    /// What became of the question that is out; asks the next one if none is.
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
            // What was wrong with the last answer says more.
            Err(_) if matches!(answer, Answer::Wrong(_)) => {}
            Err(_) => return Answer::Wrong("it takes no question on its control socket"),
        }
        answer
    }
}

fn ask(control: &Path) -> std::io::Result<UnixStream> {
    let mut stream = nf_socket::open(control)?;
    stream.write_all(QUESTION)?;
    Ok(stream)
}

/// Reads what has come, behind what `got` has of the answer.
fn read(stream: &mut UnixStream, got: &mut Vec<u8>) -> Answer {
    let mut buffer = [0; ANSWER.len()];
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
    let answers = [ANSWER, REFUSAL];
    if answers.iter().any(|answer| got.starts_with(answer)) {
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
    use std::os::unix::net::UnixListener;

    struct Nf {
        listener: UnixListener,
        beat: Beat,
        _directory: tempfile::TempDir,
    }

    fn nf() -> Nf {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        Nf {
            listener: UnixListener::bind(&path).unwrap(),
            beat: Beat::new(path),
            _directory: directory,
        }
    }

    impl Nf {
        /// Takes the next question.
        fn asked(&self) -> UnixStream {
            let (mut stream, _) = self.listener.accept().unwrap();
            let mut question = [0; QUESTION.len()];
            stream.read_exact(&mut question).unwrap();
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
            stream.write_all(piece).unwrap();
            assert_eq!(nf.beat.look(), Answer::Awaited);
        }
        stream.write_all(b"\n").unwrap();
        assert_eq!(nf.beat.look(), Answer::Came);
        nf.asked();
    }

    #[test]
    fn a_refusal_is_a_sign_of_life() {
        let mut nf = nf();
        nf.beat.look();
        let refusal = b"{\"error\":\"not a request\"}\n";
        nf.asked().write_all(refusal).unwrap();
        assert_eq!(nf.beat.look(), Answer::Came);
    }

    #[test]
    fn of_a_hostile_answer_no_more_is_read_than_of_a_right_one() {
        let mut nf = nf();
        nf.beat.look();
        for _ in 0..3 {
            let mut stream = nf.asked();
            stream.write_all(&[b'x'; 10_000]).unwrap();
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
    fn who_accepts_nobody_is_asked_once() {
        let mut nf = nf();
        nf.beat.look();
        for _ in 0..10_000 {
            assert_eq!(nf.beat.look(), Answer::Awaited);
        }
    }

    #[test]
    fn who_does_not_listen_takes_no_question() {
        let mut beat = Beat::new("/nonexistent/control".into());
        let refused = Answer::Wrong("it takes no question on its control socket");
        assert_eq!(beat.look(), refused);
    }

    #[test]
    fn a_full_queue_holds_up_nobody() {
        let nf = nf();
        let mut waiting = Vec::new();
        while let Ok(stream) = nf_socket::open(&nf.beat.control) {
            waiting.push(stream);
        }
        let mut beat = nf.beat;
        let refused = Answer::Wrong("it takes no question on its control socket");
        assert_eq!(beat.look(), refused);
    }
}
