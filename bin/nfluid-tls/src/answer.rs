//! Fixed answers to HTTP requests (RFC 9112), for a terminator without a backend.

/// Longest head of a request.
const HEAD_MAX: usize = 8 << 10;

/// The client's side of a connection.
#[derive(Debug, Default)]
pub struct Answer {
    /// Bytes that were read and not answered.
    read: Vec<u8>,
    /// True if no further request is answered.
    is_over: bool,
}

impl Answer {
    /// Returns the number of bytes that may be read now.
    pub fn room(&self) -> usize {
        if self.is_over {
            0
        } else {
            HEAD_MAX.saturating_sub(self.read.len())
        }
    }

    /// Appends bytes that were read.
    pub fn take(&mut self, bytes: &[u8]) {
        self.read.extend_from_slice(bytes);
    }

    /// Returns true if the connection is to be closed after the answers have been sent.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the answer to the next complete request; `is_last`: no other request will be answered.
    pub fn next(&mut self, body: &str, is_last: bool) -> Option<Vec<u8>> {
        if self.is_over {
            return None;
        }
        let Some(end) = self.read.windows(4).position(|four| four == b"\r\n\r\n") else {
            let is_too_long = self.read.len() >= HEAD_MAX;
            return is_too_long.then(|| self.refuse("431 Request Header Fields Too Large"));
        };
        let head: Vec<u8> = self.read.drain(..end + 4).collect();
        let Some(request) = Request::parse(&head) else {
            return Some(self.refuse("400 Bad Request"));
        };
        // The body of a request is not read, and would be taken for the next request.
        self.is_over = is_last || request.closes || request.has_body;
        let close = if self.is_over {
            "Connection: close\r\n"
        } else {
            ""
        };
        let shown = if request.wants_head_only { "" } else { body };
        let length = body.len();
        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{close}\r\n{shown}");
        Some(text.into_bytes())
    }

    fn refuse(&mut self, status: &str) -> Vec<u8> {
        self.is_over = true;
        self.read = Vec::new();
        let text = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        text.into_bytes()
    }
}

/// The relevant properties of a request.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    wants_head_only: bool,
    closes: bool,
    has_body: bool,
}

impl Request {
    /// Parses a head, including its empty line.
    fn parse(head: &[u8]) -> Option<Self> {
        let head = std::str::from_utf8(head).ok()?;
        let mut lines = head.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, _, version) = (words.next()?, words.next()?, words.next()?);
        let is_new = version == "HTTP/1.1";
        if words.next().is_some() || method.is_empty() || !(is_new || version == "HTTP/1.0") {
            return None;
        }
        let mut request = Request {
            wants_head_only: method == "HEAD",
            closes: !is_new,
            has_body: false,
        };
        for line in lines.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':')?;
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "connection" => request.closes |= value.eq_ignore_ascii_case("close"),
                "content-length" => request.has_body |= value != "0",
                "transfer-encoding" => request.has_body = true,
                _ => {}
            }
        }
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(bytes: &[u8]) -> (Vec<String>, bool) {
        let mut answer = Answer::default();
        answer.take(bytes);
        let mut all = Vec::new();
        while let Some(next) = answer.next("hello", false) {
            all.push(String::from_utf8(next).expect("it is text"));
        }
        (all, answer.is_over())
    }

    #[test]
    fn requests_are_answered_one_by_one_until_the_last() {
        let get = "GET / HTTP/1.1\r\nHost: shop\r\n\r\n";
        let (all, is_over) = answers(format!("{get}{get}GET / HT").as_bytes());
        assert_eq!(all.len(), 2);
        assert_eq!(all[0], "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        assert!(!is_over);
        let last = "HEAD / HTTP/1.1\r\nconnection: Close\r\n\r\n";
        let (all, is_over) = answers(format!("{get}{last}{get}").as_bytes());
        assert!(is_over && all.len() == 2 && all[1].ends_with("close\r\n\r\n"));
        assert!(answers(b"GET / HTTP/1.0\r\n\r\n").1);
        let mut answer = Answer::default();
        answer.take(get.as_bytes());
        assert!(answer.next("", true).is_some() && answer.is_over());
    }

    #[test]
    fn what_is_no_request_is_refused_and_ends_the_connection() {
        for bad in [
            &b"\r\n\r\n"[..],
            b"GET /\r\n\r\n",
            b"GET / HTTP/2\r\n\r\n",
            b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
            b"\xff / HTTP/1.1\r\n\r\n",
        ] {
            let (all, is_over) = answers(bad);
            assert!(
                is_over && all.len() == 1 && all[0].contains(" 400 "),
                "{all:?}"
            );
        }
        let (all, is_over) = answers(&vec![b'x'; HEAD_MAX]);
        assert!(is_over && all[0].contains(" 431 "), "{all:?}");
    }

    #[test]
    fn a_body_is_not_taken_for_a_request() {
        let post = b"POST / HTTP/1.1\r\nContent-Length: 18\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        let (all, is_over) = answers(post);
        assert!(is_over && all.len() == 1);
    }
}
