//! systemd as a node sees it: a watchdog, and a socket to which the node reports.

use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex};

pub struct Systemd {
    _folder: tempfile::TempDir,
    address: String,
    reports: Arc<Mutex<Vec<String>>>,
}

impl Systemd {
    pub fn new() -> Systemd {
        let folder = tempfile::tempdir().unwrap();
        let address = folder.path().join("notify").to_str().unwrap().to_owned();
        let socket = UnixDatagram::bind(&address).unwrap();
        let reports: Arc<Mutex<Vec<String>>> = Arc::default();
        // A node would wait in front of a full socket.
        std::thread::spawn({
            let reports = Arc::clone(&reports);
            move || {
                let mut report = [0_u8; 4096];
                while let Ok(length @ 1..) = socket.recv(&mut report) {
                    reports.lock().unwrap().push(String::from_utf8_lossy(&report[..length]).into_owned());
                }
            }
        });
        Systemd { _folder: folder, address, reports }
    }

    /// The environment of a node that pings the watchdog twice a second.
    pub fn environment(&self) -> [(&str, &str); 2] {
        [("NOTIFY_SOCKET", self.address.as_str()), ("WATCHDOG_USEC", "1000000")]
    }

    /// How many reports had these words.
    pub fn heard(&self, words: &str) -> usize {
        self.reports.lock().unwrap().iter().filter(|report| report.contains(words)).count()
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        // An empty report ends the thread.
        let _ = UnixDatagram::unbound().and_then(|socket| socket.send_to(&[], &self.address));
    }
}
