//! Stands between the store and Postgres, and may change the text of a statement on its way: so that a
//! known mistake can be put into the shipped statements without a seam in the product.
//!
//! Only messages that name a statement (`Parse`) are looked into; all others pass as they are.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Answers the text to send instead, if another.
pub type Rewrite = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The socket's name in its folder, as Postgres calls it.
const SOCKET: &str = ".s.PGSQL.5432";

pub struct Wire;

impl Wire {
    /// Listens in a folder of its own within the server's, with which it goes; answers that folder.
    pub fn start(server: &str, rewrite: Rewrite) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let folder = format!("{server}/wire{}", COUNT.fetch_add(1, Ordering::Relaxed));
        std::fs::create_dir(&folder).unwrap();
        let listener = UnixListener::bind(format!("{folder}/{SOCKET}")).unwrap();
        let server = format!("{server}/{SOCKET}");
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, UnixStream::connect(&server)) else { return };
                let rewrite = Arc::clone(&rewrite);
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || forth(from, to, &rewrite));
                std::thread::spawn(move || back(server, client));
            }
        });
        folder
    }
}

fn forth(mut from: UnixStream, mut to: UnixStream, rewrite: &Rewrite) -> Option<()> {
    // The first message has no letter.
    let first = body_of(&mut from)?;
    to.write_all(&framed(None, &first)).ok()?;
    loop {
        let mut letter = [0];
        from.read_exact(&mut letter).ok()?;
        let mut message = body_of(&mut from)?;
        if letter == *b"P"
            && let Some(changed) = changed(&message, rewrite)
        {
            message = changed;
        }
        to.write_all(&framed(Some(letter[0]), &message)).ok()?;
    }
}

fn back(mut from: UnixStream, mut to: UnixStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(std::net::Shutdown::Both);
}

fn body_of(from: &mut UnixStream) -> Option<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length).ok()?;
    let mut body = vec![0; (u32::from_be_bytes(length) as usize).checked_sub(4)?];
    from.read_exact(&mut body).ok()?;
    Some(body)
}

fn framed(letter: Option<u8>, body: &[u8]) -> Vec<u8> {
    let mut frame: Vec<u8> = letter.into_iter().collect();
    frame.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    frame.extend(body);
    frame
}

/// `Parse`: the statement's name, its text, and the types of its parameters.
fn changed(message: &[u8], rewrite: &Rewrite) -> Option<Vec<u8>> {
    let name = message.iter().position(|byte| *byte == 0)? + 1;
    let end = name + message[name..].iter().position(|byte| *byte == 0)?;
    let text = rewrite(std::str::from_utf8(&message[name..end]).ok()?)?;
    Some([&message[..name], text.as_bytes(), &message[end..]].concat())
}
