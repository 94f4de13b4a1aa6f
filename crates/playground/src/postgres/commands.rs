//! The command lines of a private Postgres.

use std::path::Path;

use super::{PostgresOptions, USER};

/// A shell script that copies the data of another server and makes the copy a standby.
const COPY: &str = "cp -a \"$1/data\" data && rm -f data/postmaster.pid && touch data/standby.signal";

pub(super) fn prepare(bin: &Path, options: &PostgresOptions) -> Vec<String> {
    if let Some(folder) = &options.standby_of {
        let folder = folder.display().to_string();
        return ["/bin/sh", "-c", COPY, "sh", &folder].map(String::from).to_vec();
    }
    let mut words = vec![bin.join("initdb").display().to_string()];
    words.extend(["-D", "data", "-U", USER, "-E", "UTF8", "--locale=C", "--auth=trust"].map(String::from));
    if !options.durable {
        words.push("--no-sync".to_owned());
    }
    words
}

pub(super) fn postgres(bin: &Path, socket_folder: &str, port: u16, options: &PostgresOptions) -> Vec<String> {
    let mut words = vec![bin.join("postgres").display().to_string(), "-D".to_owned(), "data".to_owned()];
    let mut set = |name: &str, value: &str| words.extend(["-c".to_owned(), format!("{name}={value}")]);
    set("listen_addresses", if options.tcp { "127.0.0.1" } else { "" });
    set("port", &port.to_string());
    set("unix_socket_directories", socket_folder);
    set("max_connections", &options.max_connections.to_string());
    // Keeps shared memory in the folder, so that it is removed with the folder. /dev/shm would keep it after a crash.
    set("dynamic_shared_memory_type", "mmap");
    set("timezone", "UTC");
    set("log_timezone", "UTC");
    if !options.durable {
        for name in ["fsync", "synchronous_commit", "full_page_writes"] {
            set(name, "off");
        }
    }
    for (name, value) in &options.settings {
        set(name, value);
    }
    words
}
