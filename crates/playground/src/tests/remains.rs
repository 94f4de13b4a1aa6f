//! Private servers leave no process and no folder, however the process that owns them ends.

use std::io::{BufRead, BufReader, Lines};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process};

use super::{runs, until};
use crate::*;

/// Another process that owns private servers, and what [`holder`] printed about them.
struct ServerOwner {
    process: Child,
    /// Kept open until the end, so that the process can still print.
    _words: Lines<BufReader<ChildStdout>>,
    folders: Vec<PathBuf>,
    pids: Vec<u32>,
}

impl ServerOwner {
    /// Runs this test binary as another process, which keeps servers in statics.
    fn start(binary: &Path, ending: &str, uid: Option<u32>) -> ServerOwner {
        let mut command = Command::new(binary);
        command
            .args(["--exact", "tests::remains::holder", "--ignored", "--nocapture"])
            .env("REFUNDD_TEST_ENDING", ending)
            .current_dir("/")
            .stdout(Stdio::piped())
            .process_group(0);
        if let Some(uid) = uid {
            command.gid(uid).uid(uid);
        }
        let mut process = command.spawn().unwrap();
        let (mut folders, mut pids) = (Vec::new(), Vec::new());
        let mut words = BufReader::new(process.stdout.take().unwrap()).lines();
        for line in words.by_ref() {
            let line = line.unwrap();
            match line.rsplit_once("owns ").and_then(|(_, rest)| rest.split_once(' ')) {
                Some(("folder", folder)) => folders.push(PathBuf::from(folder)),
                Some(("pid", pid)) => pids.push(pid.parse().unwrap()),
                Some(("all", _)) => break,
                _ => {}
            }
        }
        let owner = ServerOwner { process, _words: words, folders, pids };
        assert_eq!((owner.folders.len(), owner.pids.len()), (2, 2), "the holder said too little");
        owner
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn nothing_is_left(mut self) {
        self.process.wait().unwrap();
        for folder in &self.folders {
            until("the folder is gone", || !folder.exists());
        }
        for pid in &self.pids {
            until("the process is gone", || !runs(*pid));
        }
    }
}

/// Not a test, but the other process of the tests below.
#[test]
#[ignore = "run by the tests below, in a process of its own"]
fn holder() {
    static POSTGRES: OnceLock<PrivatePostgres> = OnceLock::new();
    static REDIS: OnceLock<PrivateRedis> = OnceLock::new();
    let Ok(ending) = std::env::var("REFUNDD_TEST_ENDING") else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let redis = PrivateRedis::start().await.unwrap();
        println!("owns folder {}\nowns pid {}", redis.folder().display(), redis.pid());
        REDIS.set(redis).unwrap();
        let postgres = PrivatePostgres::start_with(&PostgresOptions::for_tests()).await.unwrap();
        println!("owns folder {}\nowns pid {}", postgres.folder().display(), postgres.pid());
        POSTGRES.set(postgres).unwrap();
        println!("owns all here");
        match ending.as_str() {
            "return" => {}
            // An explicit handler, because the tests may have been started with SIGINT ignored.
            "interrupt" => {
                tokio::signal::ctrl_c().await.unwrap();
                std::process::exit(130);
            }
            _ => std::future::pending::<()>().await,
        }
    });
}

fn this_binary() -> PathBuf {
    std::env::current_exe().unwrap()
}

#[test]
fn kill_minus_nine_leaves_no_process_and_no_folder() {
    let owner = ServerOwner::start(&this_binary(), "wait", None);
    owner.signal(Signal::KILL);
    owner.nothing_is_left();
}

#[test]
fn ctrl_c_leaves_no_process_and_no_folder() {
    let owner = ServerOwner::start(&this_binary(), "interrupt", None);
    owner.signal(Signal::INT);
    owner.nothing_is_left();
}

#[test]
fn servers_in_statics_go_with_the_process() {
    ServerOwner::start(&this_binary(), "return", None).nothing_is_left();
}

#[test]
fn root_can_lend_itself_to_an_ordinary_user_and_nothing_is_left() {
    if !rustix::process::geteuid().is_root() {
        return; // without root, every other test here shows the same
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let copy = folder.path().join("holder");
    std::fs::copy(this_binary(), &copy).unwrap();
    let owner = ServerOwner::start(&copy, "wait", Some(65534));
    owner.signal(Signal::KILL);
    owner.nothing_is_left();
}

#[test]
fn killing_it_while_it_starts_leaves_nothing_either() {
    // The temporary folder is new, so every entry in it was made by the holder.
    let folder = tempfile::Builder::new().prefix("rt").tempdir_in("/tmp").unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).unwrap();
    let entries = || std::fs::read_dir(folder.path()).unwrap().count();
    for _ in 0..5 {
        let mut process = Command::new(this_binary())
            .args(["--exact", "tests::remains::holder", "--ignored", "--nocapture"])
            .env("REFUNDD_TEST_ENDING", "wait")
            .env("TMPDIR", folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        until("both folders were begun", || entries() == 2);
        process.kill().unwrap();
        process.wait().unwrap();
        until("nothing is left", || entries() == 0);
    }
}
