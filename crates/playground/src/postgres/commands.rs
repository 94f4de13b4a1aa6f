//! The command lines of a private Postgres.

use std::path::Path;

use super::{PostgresOptions, USER};

/// Makes new data.
pub(super) fn initdb(bin: &Path, options: &PostgresOptions) -> Vec<String> {
    let mut words = vec![bin.join("initdb").display().to_string()];
    words.extend(["-D", "data", "-U", USER, "-E", "UTF8", "--locale=C", "--auth=trust"].map(String::from));
    if !options.durable {
        words.push("--no-sync".to_owned());
    }
    words
}

/// Makes data for a standby: a copy of those of a server that runs, and the address to follow. The primary keeps its log for the standby.
pub(super) fn copy(bin: &Path, socket_folder: &str, port: u16) -> Vec<String> {
    // The folder may hold links to only some of Postgres's programs.
    let server = bin.join("postgres");
    let program =
        server.canonicalize().unwrap_or(server).with_file_name("pg_basebackup").display().to_string();
    let port = port.to_string();
    let mut words = vec![program, "-D".to_owned(), "data".to_owned()];
    words.extend(["-h", socket_folder, "-p", &port, "-U", USER].map(String::from));
    words.extend(
        ["--checkpoint=fast", "--write-recovery-conf", "--create-slot", "--slot=standby"].map(String::from),
    );
    words
}

/// Runs a server.
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
