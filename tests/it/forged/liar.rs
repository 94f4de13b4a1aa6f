//! A Redis whose program lies in its replies: a relay that changes the names of granted permits on their way to the node.

use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// A relay before a Redis server. Each permit gets a name of its own: `step_us` after the last one, and after
/// `steps` of them again from the first.
pub struct Liar {
    lies: Arc<Lies>,
}

struct Lies {
    step_us: i64,
    steps: i64,
    /// How many permits got another name.
    renamed: AtomicI64,
    has_ended: AtomicBool,
}

impl Liar {
    /// The relay listens at `socket`, before the server at `server`.
    pub fn before(server: &Path, socket: &Path, step_us: i64, steps: i64) -> Liar {
        let (server, listener) = (server.to_owned(), UnixListener::bind(socket).unwrap());
        let lies =
            Arc::new(Lies { step_us, steps, renamed: AtomicI64::new(0), has_ended: AtomicBool::new(false) });
        let of_relay = Arc::clone(&lies);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, UnixStream::connect(&server)) else { continue };
                let (mut calls, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = io::copy(&mut calls, &mut to_server);
                    let _ = to_server.shutdown(Shutdown::Both);
                });
                let lies = Arc::clone(&of_relay);
                std::thread::spawn(move || {
                    let _ = relay(&server, &client, &lies);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        Liar { lies }
    }

    /// Passes on replies as they are from now on.
    pub fn end(&self) {
        self.lies.has_ended.store(true, Ordering::Relaxed);
    }

    /// How many permits got another name.
    pub fn renamed(&self) -> i64 {
        self.lies.renamed.load(Ordering::Relaxed)
    }
}

fn relay(server: &UnixStream, mut client: &UnixStream, lies: &Lies) -> io::Result<()> {
    let mut replies = BufReader::new(server);
    loop {
        let mut reply = Reply::read(&mut replies)?;
        if !lies.has_ended.load(Ordering::Relaxed) {
            lies.rename_permits(&mut reply);
        }
        let mut bytes = Vec::new();
        reply.write(&mut bytes);
        client.write_all(&bytes)?;
    }
}

impl Lies {
    /// Renames the permits of a reply to a take (`take.lua`): its last part has a list for each permit, whose third
    /// number is the name.
    fn rename_permits(&self, reply: &mut Reply) {
        let Reply::Array(parts) = reply else { return };
        let [Reply::Line(code), .., Reply::Array(permits)] = parts.as_mut_slice() else { return };
        if code != b":1\r\n" {
            return;
        }
        for permit in permits {
            let Reply::Array(numbers) = permit else { continue };
            // Redis writes a number of this size as a text.
            let Some(Reply::Text(name)) = numbers.get_mut(2) else { continue };
            let number: i64 = std::str::from_utf8(name).unwrap().parse().unwrap();
            let nth = self.renamed.fetch_add(1, Ordering::Relaxed) % self.steps;
            *name = (number + (nth - self.steps / 2) * self.step_us).to_string().into_bytes();
        }
    }
}

/// One reply in Redis's protocol, version 2.
enum Reply {
    /// A small number, a status, an error or nothing, with its line break.
    Line(Vec<u8>),
    Text(Vec<u8>),
    Array(Vec<Reply>),
}

impl Reply {
    fn read(from: &mut impl BufRead) -> io::Result<Reply> {
        let mut line = Vec::new();
        if from.read_until(b'\n', &mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let length = std::str::from_utf8(&line[1..]).ok().and_then(|text| text.trim().parse::<usize>().ok());
        match (line[0], length) {
            (b'$', Some(length)) => {
                let mut text = vec![0; length + 2];
                from.read_exact(&mut text)?;
                text.truncate(length);
                Ok(Reply::Text(text))
            }
            (b'*', Some(length)) => {
                Ok(Reply::Array((0..length).map(|_| Reply::read(from)).collect::<io::Result<Vec<Reply>>>()?))
            }
            _ => Ok(Reply::Line(line)),
        }
    }

    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Reply::Line(line) => to.extend(line),
            Reply::Text(text) => {
                to.extend(format!("${}\r\n", text.len()).into_bytes());
                to.extend(text);
                to.extend(b"\r\n");
            }
            Reply::Array(parts) => {
                to.extend(format!("*{}\r\n", parts.len()).into_bytes());
                for part in parts {
                    part.write(to);
                }
            }
        }
    }
}
